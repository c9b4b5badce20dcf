"""Strategies for prompts, caches after some decoding, and next tokens."""

from typing import Any

import torch
from hypothesis import strategies as st

import reference
from reference.hex.kcvt import bits_of_both
from spec_tests.quantizers.gear.strategies import (
    gear_settings,
    gear_spans,
    is_partly_corrected,
    lengths,
)
from spec_tests.quantizers.kivi.strategies import (
    bad_arrival,
    bad_prompt,
    before_tokens,
    keys,
    values,
)
from spec_tests.quantizers.low_rank.strategies import up_to


@st.composite
def gear_streams(draw, settings, spans):
    """Spans of keys and values of the given lengths, and the least rank of their errors.

    They come with bits of their own for values, which the settings receive.
    """
    before, width = draw(before_tokens), draw(st.integers(1, 3))
    bits, outliers = settings["bits"], settings["outliers"]
    settings["value_bits"] = draw(st.none() | st.integers(1, 4))
    value_bits = settings["value_bits"] or bits
    shapes = [(*before, n, width) for n in spans]
    keys, key_ranks = zip(
        *(draw(gear_spans(shape, "channel", bits, outliers)) for shape in shapes), strict=True
    )
    values, value_ranks = zip(
        *(draw(gear_spans(shape, "token", value_bits, outliers)) for shape in shapes), strict=True
    )
    ranks = [min(pair) for pair in zip(key_ranks, value_ranks, strict=True)]
    return torch.cat(keys, -2), torch.cat(values, -2), ranks


@st.composite
def gear_prefill(draw):
    """Inputs of a prompt."""
    settings = draw(gear_settings())
    keys, values, (rank,) = draw(gear_streams(settings, [draw(lengths)]))
    ranks = dict(rank=draw(up_to(rank)), decoded_rank=draw(st.integers(0, 3)))
    return dict(keys=keys, values=values, block=draw(st.integers(1, 6)), **ranks, **settings)


@st.composite
def gear_append(draw):
    """A cache after a prompt and some decoding, and up to three more blocks."""
    settings, block = draw(gear_settings()), draw(st.sampled_from([4, 3, 5, 2, 1]))
    prompt, blocks = draw(lengths), draw(st.integers(0, 2))
    keys, values, ranks = draw(gear_streams(settings, [prompt, *[block] * (blocks + 1)]))
    settings["decoded_rank"] = draw(up_to(min(ranks[1:])))
    start = draw(st.integers(prompt, prompt + blocks * block))
    stop = draw(st.integers(start, prompt + (blocks + 1) * block - 1))
    x = dict(keys=keys[..., :prompt, :], values=values[..., :prompt, :], block=block, **settings)
    cache = reference.gear_prefill(**x, rank=min(2, ranks[0]))
    cache = reference.gear_append(cache, *(y[..., prompt:start, :] for y in (keys, values)))
    new = (y[..., start:stop, :].clone() for y in (keys, values))
    return dict(zip(("cache", "keys", "values"), (cache, *new), strict=True))


@st.composite
def gear_caches(draw):
    """A cache after any tokens."""
    return reference.gear_append(**draw(gear_append()))


GRID = ("bits", "outliers", "fill", "seed", "scales")


def is_partial_prompt(x):
    """Whether a prompt's error has a higher rank than its corrections."""
    rest = {name: x[name] for name in ("rank", *GRID)}
    sides = dict(keys="channel", values="token")
    widths = zip(sides, (x["bits"], x.get("value_bits") or x["bits"]), strict=True)
    return any(
        is_partly_corrected(x[name], sides[name], **rest | dict(bits=bits)) for name, bits in widths
    )


def is_partial_block(x):
    """Whether the error of a full block has a higher rank than its corrections."""
    cache = x["cache"]
    buffers = dict(keys=cache.residual_keys, values=cache.residual_values)
    buffers = {name: torch.cat([old, x[name]], -2) for name, old in buffers.items()}
    rest = {name: getattr(cache, name) for name in GRID} | dict(rank=cache.decoded_rank)
    bits, value_bits = bits_of_both(cache.bits)
    rest |= dict(bits=bits, value_bits=value_bits)
    starts = range(0, buffers["keys"].shape[-2] - cache.block + 1, cache.block)
    blocks = ({k: y[..., t : t + cache.block, :] for k, y in buffers.items()} for t in starts)
    return any(is_partial_prompt(rest | block) for block in blocks)


DRAWN = dict(gear_prefill=is_partial_prompt, gear_append=is_partial_block)

INPUTS = dict(gear_read=dict(cache=gear_caches(), exact_outliers=st.booleans()))

prompt: dict[str, Any] = dict(
    keys=keys, values=values, bits=4, outliers=0.3, rank=2, decoded_rank=1, block=4, fill=True,
    seed=0, scales=torch.float16, value_bits=2,
)  # fmt: skip
cache = reference.gear_prefill(**prompt)

GOOD = dict(gear_read=dict(cache=cache, exact_outliers=False))

REFUSALS = dict(
    gear_prefill=(prompt, bad_prompt),
    gear_append=(dict(cache=cache, keys=keys, values=values), bad_arrival),
)
