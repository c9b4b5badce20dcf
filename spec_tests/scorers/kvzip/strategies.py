"""Strategies for inputs of KVzip."""

import torch
from hypothesis import strategies as st

from spec_tests.attention.strategies import query_refusals
from spec_tests.scorers.padding_masks import (
    bad_padding,
    batches,
    groups,
    key_heads,
    lengths,
    masks,
    with_last_token_padded,
)
from spec_tests.strategies import Refusal, importance, longer, signed_numbers

nonempty_batches = st.sampled_from([(2,), ()])


@st.composite
def context(draw, busy):
    """Keys with padding, sinks and chunks of any size, and strategies for the other inputs."""
    batch, sinks = (
        draw(nonempty_batches if busy else batches),
        draw(st.integers(0, 2 if busy else 4)),
    )
    kv_heads, group = draw(key_heads.filter(bool) if busy else key_heads), draw(groups)
    tokens, width = draw(lengths), draw(st.integers(1, 3))
    tokens, number = max(tokens, sinks + 1) if busy else tokens, draw(signed_numbers)
    keys = dict(
        keys=draw(number(*batch, kv_heads, tokens, width)),
        chunk=draw(st.integers(1, 4 if busy else 8)),
        sinks=sinks,
        valid=draw(masks(batch, tokens)),
    )
    return keys, kv_heads * group, number


@st.composite
def repetition(draw, keys, heads, number, busy):
    """Queries and keys of one repeat input, with or without padding."""
    *batch, kv_heads, _, width = keys.shape
    repeat = draw(st.integers(busy, 4))
    count = draw(st.integers(busy, repeat))
    return (
        draw(number(*batch, heads, count, width)),
        draw(number(*batch, kv_heads, repeat, width)),
        draw(masks(batch, repeat)),
    )


@st.composite
def kvzip_chunk(draw, busy=False):
    """Inputs with any chunk, also one past the end; a `busy` one has a token to score."""
    x, heads, number = draw(context(busy))
    queries, repeat_keys, repeat_valid = draw(repetition(x["keys"], heads, number, busy))
    before = draw(importance(*x["keys"].shape[:-1]))
    return x | dict(
        queries=queries,
        repeat_keys=repeat_keys,
        index=0 if busy and draw(st.booleans()) else draw(st.integers(0, 3)),
        repeat_valid=repeat_valid,
        past=draw(st.sampled_from([None, before])),
    )


def chunk_count(x):
    """Return the number of chunks of the longest row."""
    *batch, _, tokens, _ = x["keys"].shape
    lengths = torch.full(batch, tokens) if x["valid"] is None else x["valid"].sum(-1)
    longest = int(lengths.max()) if lengths.numel() else 0
    return -(-max(0, longest - x["sinks"]) // x["chunk"])


@st.composite
def kvzip(draw, busy=False):
    """A repeat input for each chunk of the longest row."""
    x, heads, number = draw(context(busy))
    drawn = [draw(repetition(x["keys"], heads, number, busy)) for _ in range(chunk_count(x))]
    everything = [torch.ones(*k.shape[:-3], k.shape[-2], dtype=torch.bool) for _, k, _ in drawn]
    masks = (e if m is None else m for (_, _, m), e in zip(drawn, everything, strict=True))
    return x | dict(
        queries=tuple(queries for queries, _, _ in drawn),
        repeat_keys=tuple(keys for _, keys, _ in drawn),
        recent=draw(st.sampled_from([None, 0, 3])),
        repeat_valid=draw(st.sampled_from([None, tuple(masks)])),
    )


generator = torch.Generator().manual_seed(11)
queries, keys, echo = (torch.randn(n, 4, 2, generator=generator) for n in (4, 2, 2))
valid = torch.arange(4) > 0
past = torch.zeros(2, 4)
bad_queries = query_refusals(tokens=4)
bad_echo = Refusal("repeat_valid", with_last_token_padded, ValueError, "on the left")


def in_the_last(refusal: Refusal) -> Refusal:
    """Return the refusal of one tensor as that of the second of two."""
    return refusal._replace(change=lambda parts: (parts[0], refusal.change(parts[1])))


def bad_tuple(name: str) -> list[Refusal]:
    """Return refusals of a tuple that does not hold one tensor for each of two chunks."""
    return [
        Refusal(name, (), ValueError, "2 entries"),
        Refusal(name, lambda parts: parts[:1], ValueError, "2 entries"),
        in_the_last(Refusal(name, longer, ValueError, f"{name}[1] must have shape")),
    ]


SCORED = dict(
    kvzip=lambda impl, queries, keys, valid, **_: impl.kvzip(
        queries.split(4, -2), keys, keys.split(4, -2), chunk=4, sinks=1, valid=valid
    ),
)

REFUSALS = dict(
    kvzip_chunk=(
        dict(queries=queries, keys=keys, repeat_keys=echo, index=0, chunk=2, sinks=1, valid=valid,
             repeat_valid=valid, past=past),
        [*bad_queries, bad_padding, bad_echo],
    ),
    kvzip=(
        dict(queries=(queries, queries), keys=keys, repeat_keys=(echo, echo), chunk=2, sinks=0,
             recent=1, valid=valid, repeat_valid=(valid, valid)),
        [
            Refusal("queries", (queries[:3], queries[:3]), ValueError, "multiple of the 2"),
            in_the_last(bad_queries[-1]),
            *bad_tuple("queries"),
            *bad_tuple("repeat_keys"),
            in_the_last(Refusal("repeat_keys", lambda k: k * torch.nan, ValueError, "finite")),
            bad_padding,
            *bad_tuple("repeat_valid"),
            in_the_last(Refusal("repeat_valid", lambda v: v.float(), TypeError, "boolean")),
            in_the_last(bad_echo),
        ],
    ),
)  # fmt: skip
