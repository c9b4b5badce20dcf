"""Calls with long axes: more than two blocks of 256 tokens, or more than 128 channels.

A kernel reads an axis in blocks of 64, 128 or 256, and goes wrong at the first token of the next.
Each call here is the good call of a function (`GOOD`) with longer axes. Scores are distinct; rows
of other numbers repeat after 13, which divides no block.
"""

import json
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.inputs import GOOD
from spec_tests.json_values import read
from spec_tests.report.calls import arguments_and_fields, mapped, names_of_axes, replace_argument
from spec_tests.vectors.flags import COMPARED

Inputs = dict[str, Any]
TOKENS, WIDTH, PERIOD = 521, 136, 13
ROW = dict.fromkeys(("tokens", "members", "length", "picks", "before", "rows"), TOKENS)
LONG = ROW | dict(queries=3, width=2, channels=4, hidden=2, query_heads=4)
WIDE = dict(tokens=4, queries=2, width=WIDTH, channels=2 * WIDTH, hidden=WIDTH, half=WIDTH // 2)
WIDE |= dict(query_heads=4)
MOST = {"*heads": 2, "*query_heads": 4}
"""Largest number of heads; of other leading axes one row is enough."""
NEAR = torch.tensor([0.25, 0.5, 1.0, 2.0])
"""Numbers of which no code is halfway between two, in any group. Padding by 0 is below them."""
SIGNED = {
    "expected_attention",
    "hex_prefill",
    "select",
    "compress",
    "graphkv_select",
    "graphkv_compress",
}
"""Functions whose rows lie around 0, where another rounding changes no choice, or nothing grows."""
STEADY = SIGNED | {"hex_compress"}
"""Functions whose rows do not grow, for the same reason."""
BORDERS = {64: 1.25, 128: 1.5, 256: 2.0, 512: 3.0}
"""First entries of blocks, and factors of what stands there, so that a maximum grows."""
NUMBERS = dict(tokens=TOKENS, length=TOKENS, span=TOKENS, keep=300, distances=300)
"""Arguments that are numbers of tokens."""
TABLES = json.loads(Path(__file__).with_name("changes.json").read_text())
"""What calls with many tokens have besides, what `both` have, settings of long and of wide caches
by the function that begins them, and functions without such calls or vectors, and why."""
BY_AGREEMENT = TABLES["by agreement"]
RESULTS = dict(
    from_csr=("to_csr", lambda _, csr: csr._asdict() | dict(channels=4)),
    gear_reconstruct=("gear_compress", lambda _, block: dict(block=block)),
    hex_reconstruct=("hex_compress", lambda call, x: dict(block=x, expander=call["expander"])),
    ragged_attention=("evict", lambda _, cache: dict(cache=cache)),
    unpack_bits=("pack_bits", lambda _, words: dict(words=words, length=TOKENS)),
)
"""Functions that read the result of another one, and the arguments that come from its call."""


def long_inputs(name: str) -> Iterator[Inputs]:
    """Yield the calls of a function with many tokens and with many channels."""
    good, caches = GOOD[name], TABLES["caches"].items()
    begins = [begin for begin, kind in caches if name in (begin, *kind["of"].split())]
    axes = {a for key, field, value in arguments_and_fields(good)
            for a in names_of_axes(name, key, field, value)}  # fmt: skip
    made = type(good.get("tokens")) is int and hasattr(
        signature(getattr(reference, name)).return_annotation, "dim_str"
    )
    if begins:
        yield from calls_on_caches(name, begins[0])
    elif name in RESULTS:
        source, arguments = RESULTS[name]
        for call, lengths in zip(long_inputs(source), (LONG, WIDE), strict=False):
            yield lengthened(name, lengths) | arguments(call, getattr(reference, source)(**call))
    elif name not in TABLES["short"]:
        if axes & ROW.keys() or made:
            numbers = {key: n for key, n in NUMBERS.items() if type(good.get(key)) is int}
            for change in TABLES["long"].get(name, [{}]):
                yield lengthened(name, LONG) | numbers | read(change)
        if axes & {"width", "half"} or good.keys() & {"expander", "hidden"}:
            yield lengthened(name, WIDE)


def calls_on_caches(name: str, begin: str) -> Iterator[Inputs]:
    """Yield a call on a cache of many tokens, and one on a cache of many channels."""
    takes, grows = signature(getattr(reference, name)).parameters, name.endswith(("append", "code"))
    settings = TABLES["caches"][begin]["settings"]
    for lengths, changes, first in zip((LONG, WIDE), settings, (510, 2), strict=True):
        text = lengthened(begin, lengths) | read(changes)
        if name == "hex_recompress":  # in full mode equal values of a group are no longer equal
            text["config"] = text["config"]._replace(mode="oracle")
        rows = {key: -1 if key == "scores" else -2 for key in text if torch.is_tensor(text[key])}
        old, new = (slice(first), slice(first, None)) if grows else (slice(None), slice(-3, None))
        earlier, later = (
            {key: text[key].index_select(axis, torch.arange(text[key].shape[axis])[part])
             for key, axis in rows.items()} for part in (old, new)
        )  # fmt: skip
        called = getattr(reference, begin)
        wanted = {key: x for key, x in later.items() if key in takes}
        yield text if name == begin else dict(cache=called(**text | earlier)) | wanted


def lengthened(name: str, lengths: dict[str, int]) -> Inputs:
    """Return the good call of a function with axes of these lengths, and other numbers."""
    inputs = GOOD[name] | read(TABLES["both"].get(name, {}))
    inputs.pop("value_bits", None)  # an extension, which published vectors do not ask for
    for key, field, value in [*arguments_and_fields(inputs)]:

        def change(part: Tensor, key: str = key, field: str = field) -> Tensor:
            axes = names_of_axes(name, key, field, part)
            return filled(part, axes, {key, field}, lengths, name)

        inputs = replace_argument(inputs, key, field, mapped(change, value))
    return inputs


def filled(
    value: Tensor, axes: list[str], names: set[str], lengths: dict[str, int], name: str
) -> Tensor:
    """Return a tensor with axes of these lengths; at most two heads, and one row of a batch."""
    for at, axis in enumerate(axes):
        count = value.shape[at]
        few = min(count, MOST.get(axis.rstrip("0123456789"), 1 if axis[0] == "*" else count))
        index = torch.arange(length := lengths.get(axis, few))
        padded = names & {"valid", "repeat_valid"}  # padding stays on the left
        value = value.index_select(at, index * count // length if padded else index % count)
    if "protected" in names:
        return value & (torch.arange(value.shape[-1]) < 2)
    if "expander" in names:
        tokens, channels = value.shape[-2:]
        return (5 * torch.arange(tokens)[:, None] + torch.arange(channels)) % PERIOD == 0
    random, many, shape = torch.Generator().manual_seed(0), value.numel(), [*value.shape]
    if not (axes and value.is_floating_point()):
        return value
    if names & (COMPARED | {"past", "corrected", "targets"}):
        distinct = (1 + torch.randperm(many, generator=random)).view(shape)
        return highest_at_borders(distinct) / 2 ** many.bit_length()
    longest = shape.index(length := max(shape))
    shape[longest] = min(length, PERIOD)
    rows = NEAR[torch.randint(len(NEAR), shape, generator=random)]
    rows = rows.index_select(longest, torch.arange(length) % PERIOD)
    if name in STEADY:
        return rows - 1 if name in SIGNED else rows
    factors = torch.tensor([BORDERS.get(at, 1.0) for at in range(length)])
    factors = factors.view([-1 if at == longest else 1 for at in range(len(shape))])
    return rows * factors


def highest_at_borders(scores: Tensor) -> Tensor:
    """Return scores with the highest on both sides of each border, rising in even rows."""
    scores = scores.clone()
    for number, row in enumerate(scores.view(-1, scores.shape[-1])):
        pairs = [(at, at - 1) for at in BORDERS if at < len(row)]
        places = [at for pair in pairs for at in pair[:: -1 if number % 2 else 1]]
        high = row.sort(descending=True).values[: len(places)]
        for place, highest in zip(places, high, strict=True):
            other = int((row == highest).nonzero()[0])
            row[other], row[place] = row[place].clone(), highest
    return scores
