"""Inputs of the scorers that need queries and keys alone."""

import torch
from hypothesis import strategies as st

from spec_tests.draw import grid, real, signed
from spec_tests.inputs.base_scorers_refusals import REFUSALS

__all__ = ["INPUTS", "REFUSALS", "attended", "crowds", "left_padding"]

# What says most stands first, where Hypothesis looks most often: empty axes are tried, but rarely.
batches = st.sampled_from([(2,), (), (2,), (), (1,), (2, 1), (0,)])
mostly = st.sampled_from([True, True, True, False])
key_heads = st.sampled_from([1, 2, 1, 2, 1, 2, 0])
lengths = st.sampled_from([8, 7, 6, 5, 8, 7, 6, 4, 3, 2, 1, 0])


@st.composite
def left_padding(draw, batch, tokens):
    """A mask of rows that start anywhere, at the first token or behind the last one."""
    rows = torch.Size(batch).numel()
    place = st.sampled_from([min(1, tokens), 0, min(2, tokens), *range(tokens + 1)])
    first = draw(st.lists(place, min_size=rows, max_size=rows))
    starts = torch.tensor(first, dtype=torch.int64).reshape(*batch, 1)
    return torch.arange(tokens) >= starts


@st.composite
def attended(draw, least=0, number=None, groups=(2, 1, 4)):
    """Queries, the last of so many tokens, keys, and maybe padding."""
    batch, width = draw(batches), draw(st.integers(1, 4))
    kv_heads, group = draw(key_heads), draw(st.sampled_from(groups))
    tokens = draw(lengths)
    count = tokens - draw(st.integers(0, max(0, tokens - least)))
    number = number or draw(st.sampled_from([signed, real]))
    return dict(
        queries=draw(number(*batch, kv_heads * group, count, width)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        valid=draw(left_padding(batch, tokens)) if draw(mostly) else None,
    )


@st.composite
def crowds(draw):
    """Two rows, padded or not, of an odd number of tokens; 1, 4 or 8 query heads a key head."""
    group, tokens = draw(st.sampled_from([4, 1, 8])), draw(st.sampled_from([7, 5, 7, 1, 3, 5]))
    kv_heads = 1 if group == 8 else 2
    return dict(
        queries=draw(signed(2, kv_heads * group, tokens, 2)),
        keys=draw(signed(2, kv_heads, tokens, 2)),
        valid=draw(left_padding((2,), tokens)),
    )


@st.composite
def knorm(draw):
    """Keys whose squared lengths are exact in any order."""
    x = draw(attended(number=signed))
    return dict(keys=x["keys"], valid=x["valid"], shift=draw(st.booleans()))


@st.composite
def h2o_mass(draw):
    """A sequence and what some of its first tokens have drawn before."""
    x = draw(attended())
    *heads, tokens, _ = x["keys"].shape
    before = grid(*heads, tokens - draw(st.integers(0, tokens)))
    return x | dict(mass=draw(before) if draw(mostly) else None)


@st.composite
def h2o(draw):
    """Masses with ties; a window that may cover everything."""
    batch, tokens, keep = draw(batches), draw(lengths), draw(st.integers(0, 10))
    return dict(
        mass=draw(grid(*batch, draw(key_heads), tokens)),
        keep=keep,
        valid=draw(left_padding(batch, tokens)) if draw(mostly) else None,
        recent=draw(st.none() | st.integers(0, keep)),
    )


@st.composite
def snapkv(draw):
    """Windows shorter and longer than rows."""
    window = draw(st.integers(1, 5))
    return draw(attended(least=window)) | dict(
        window=window,
        kernel=draw(st.sampled_from([1, 3, 5])),
        pooling=draw(st.sampled_from(["average", "max"])),
    )


@st.composite
def pyramidkv_budgets(draw):
    """Prompts of any length beside the budget, one or several."""
    window = draw(st.sampled_from([32, 8, 1, 0, 5]))
    spare = draw(st.sampled_from([30, 96, 7, 61, 0, 1, 50]))
    # in halves of what the budget has beyond the window; negative: less than a window
    share = st.sampled_from([10, 3, 10, 3, -1, 2, 0, 1])
    length = share.map(lambda h: window + h * spare // 2 if h >= 0 else window // 2)
    several = st.lists(length, min_size=2, max_size=3) | st.just([])
    return dict(
        keep=window + spare,
        layers=draw(st.sampled_from([4, 3, 7, 1, 2, 9, 5])),
        tokens=draw(several.map(lambda n: torch.tensor(n, dtype=torch.int64)) | length),
        window=window,
        beta=draw(st.sampled_from([20, 3, 1, 500, 2])),
        exact=draw(st.booleans()),
    )


@st.composite
def streaming_llm(draw):
    """Rows shorter and longer than the sinks."""
    x = draw(attended(number=signed))
    return dict(keys=x["keys"], sinks=draw(st.sampled_from([2, 1, 4, 0, 3, 9])), valid=x["valid"])


INPUTS = dict(
    knorm=knorm(),
    h2o_mass=h2o_mass(),
    h2o=h2o(),
    snapkv=snapkv(),
    pyramidkv_budgets=pyramidkv_budgets(),
    streaming_llm=streaming_llm(),
)
