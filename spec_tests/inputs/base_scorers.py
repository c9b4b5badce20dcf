"""Inputs of the scorers that need queries and keys alone."""

import torch
from hypothesis import strategies as st

from spec_tests.inputs.base_scorers_refusals import REFUSALS
from spec_tests.inputs.draw import grid, real

__all__ = ["INPUTS", "REFUSALS", "attended", "crowds", "left_padding"]

batches = st.sampled_from([(), (), (1,), (2,), (0,)])


@st.composite
def left_padding(draw, batch, tokens):
    """A mask of rows that start anywhere, at the first token or behind the last one."""
    rows = torch.Size(batch).numel()
    first = draw(st.lists(st.integers(0, tokens), min_size=rows, max_size=rows))
    starts = torch.tensor(first, dtype=torch.int64).reshape(*batch, 1)
    return torch.arange(tokens) >= starts


@st.composite
def attended(draw, least=0, number=None, groups=(1, 2, 4)):
    """Queries, the last of so many tokens, keys, and maybe padding."""
    batch, width = draw(batches), draw(st.integers(1, 4))
    kv_heads, group = draw(st.integers(0, 2)), draw(st.sampled_from(groups))
    tokens = draw(st.integers(0, 8))
    count = draw(st.integers(min(least, tokens), tokens))
    number = number or draw(st.sampled_from([signed, real]))
    return dict(
        queries=draw(number(*batch, kv_heads * group, count, width)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        valid=draw(st.none() | left_padding(batch, tokens)),
    )


def signed(*shape):
    """Numbers of the grid on both sides of 0."""
    return grid(*shape, low=-16)


@st.composite
def crowds(draw):
    """Two rows, padded or not, of an odd number of tokens; 1, 4 or 8 query heads a key head."""
    group, tokens = draw(st.sampled_from([1, 4, 8])), draw(st.sampled_from([1, 3, 5, 7]))
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
    before = grid(*heads, draw(st.integers(0, tokens)))
    return x | dict(mass=draw(st.none() | before))


@st.composite
def h2o(draw):
    """Masses with ties; a window that may cover everything."""
    batch, tokens, keep = draw(batches), draw(st.integers(0, 12)), draw(st.integers(0, 14))
    return dict(
        mass=draw(grid(*batch, draw(st.integers(0, 2)), tokens)),
        keep=keep,
        valid=draw(st.none() | left_padding(batch, tokens)),
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
    window = draw(st.integers(0, 40))
    length = st.integers(0, 400)
    several = st.lists(length, max_size=3).map(lambda n: torch.tensor(n, dtype=torch.int64))
    return dict(
        keep=window + draw(st.integers(0, 200)),
        layers=draw(st.integers(1, 9)),
        tokens=draw(length | several),
        window=window,
        beta=draw(st.sampled_from([1, 2, 20, 500])),
        exact=draw(st.booleans()),
    )


@st.composite
def streaming_llm(draw):
    """Rows shorter and longer than the sinks."""
    x = draw(attended(number=signed))
    return dict(keys=x["keys"], sinks=draw(st.integers(0, 9)), valid=x["valid"])


INPUTS = dict(
    knorm=knorm(),
    h2o_mass=h2o_mass(),
    h2o=h2o(),
    snapkv=snapkv(),
    pyramidkv_budgets=pyramidkv_budgets(),
    streaming_llm=streaming_llm(),
)
