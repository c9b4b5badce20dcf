"""Strategies for heads of different lengths, and for new tokens."""

import torch
from hypothesis import strategies as st

from reference import RaggedCache
from spec_tests.attention.strategies import query_refusals
from spec_tests.strategies import Refusal, booleans, gaussian_tensor, grid, longer


@st.composite
def attending(draw):
    """Inputs of up to three heads with 0 to 5 entries, and one, two or eight query heads each."""
    batch, kv_heads = draw(st.sampled_from([(), (1,), (2,), (0,)])), draw(st.integers(0, 3))
    group, width = draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 4))
    causal, tokens = draw(st.booleans()), draw(st.integers(0, 4))
    count = draw(st.integers(0, tokens if causal else 2))
    heads = torch.Size((*batch, kv_heads)).numel()
    sizes = draw(st.lists(st.integers(0, 5), min_size=heads, max_size=heads))
    number = draw(st.sampled_from([lambda *shape: grid(*shape, low=-16), gaussian_tensor]))
    old, new = (sum(sizes), width), (*batch, kv_heads, tokens, width)
    shapes = [(*batch, kv_heads * group, count, width), old, old, new, new]
    queries, left, read, keys, values = [draw(number(*shape)) for shape in shapes]
    offsets = torch.tensor([0, *sizes]).cumsum(0)
    return dict(
        queries=queries,
        cache=RaggedCache(left, read, torch.arange(sum(sizes)), offsets),
        keys=keys,
        values=values,
        valid=draw(booleans(*batch, tokens)) if draw(st.booleans()) else None,
        causal=causal,
        scale=draw(st.sampled_from([None, None, 0.25, 1.0])),
    )


INPUTS = dict(ragged_attention=attending())

EXTENDED = dict(ragged_attention=attending().map(lambda x: x | dict(log_sum_exp=True)))

entries, tokens = torch.ones(5, 2), torch.ones(1, 2, 3, 2)
cache = RaggedCache(entries, entries, torch.arange(5), torch.tensor([0, 1, 5]))
narrow = cache._replace(keys=entries[:, :1], values=entries[:, :1])


def cut(offsets: list[int]) -> RaggedCache:
    """Return the cache with other offsets."""
    return cache._replace(offsets=torch.tensor(offsets))


REFUSALS = dict(
    ragged_attention=(
        dict(
            queries=tokens.repeat(1, 2, 1, 1), cache=cache, keys=tokens, values=tokens,
            valid=torch.tensor([[False, True, True]]), causal=True, scale=None,
        ),
        [
            *query_refusals(tokens=3),
            Refusal("cache", cut([0, 5]), ValueError, "3 offsets"),
            Refusal("cache", cut([0, 5, 4]), ValueError, "rise from 0 to 5"),
            Refusal("cache", cut([0, 6, 5]), ValueError, "rise from 0 to 5"),
            Refusal("cache", cut([1, 2, 5]), ValueError, "rise from 0 to 5"),
            Refusal("cache", narrow, ValueError, "shape (5, 2)"),
            Refusal("keys", longer, ValueError, "shape"),
            Refusal("values", longer, ValueError, "shape"),
            Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
        ],
    ),
)  # fmt: skip
