"""Attention over heads of different lengths: HEX §3.1 on the result of GraphKV §4.1."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from spec_tests.accuracy import assert_as_accurate, assert_close, assert_equal, cast
from spec_tests.attention.oracle import merged
from spec_tests.ragged_attention.strategies import attending


def read_and_sums(queries, cache, keys, values, valid, causal, scale):
    """Attend with tensors that contain only the entries and tokens that a query sees.

    Return the log-sum-exp of their logits, too.
    """
    outputs, column = torch.zeros_like(queries), torch.arange(keys.shape[-2])
    sums, factor = torch.zeros_like(queries[..., 0]), scale or queries.shape[-1] ** -0.5
    heads, count = queries.shape[-3:-1]
    for number, (*row, kv_head) in enumerate(np.ndindex(*keys.shape[:-2])):
        span = slice(cache.offsets[number], cache.offsets[number + 1])
        flags = column >= 0 if valid is None else valid[tuple(row)]
        for head, t in product(range(heads // keys.shape[-3]), range(count)):
            index = (*row, kv_head * (heads // keys.shape[-3]) + head)
            last = len(column) - count + t
            seen = (flags | (column == last)) & (column <= last) if causal else flags
            both = zip(cache[:2], (keys, values), strict=True)
            key, value = (torch.cat([x[span], y[(*row, kv_head)][seen]])[None] for x, y in both)
            query = queries[index][None, t : t + 1]
            outputs[index][t] = reference.attention(query, key, value, False, scale)[0, 0]
            sums[index][t] = (query @ key.mT * factor).logsumexp(-1)[0, 0]
    return outputs, sums


def whole(*args, **kwargs):
    return read_and_sums(*args, **kwargs)[0]


whole.__name__ = "attention"  # so that its tolerance is that of attention


@pytest.mark.spec("HEX-3.1a", "GraphKV-4.1")
@given(attending())
def test_each_head_attends_to_its_own_entries_and_to_the_new_tokens(impl, x):
    assert_as_accurate(impl.ragged_attention(**x), whole, x)


@pytest.mark.spec("HEX-3.1a", "GraphKV-4.1")
@given(st.integers(0, 2**16), st.integers(1, 4), st.integers(0, 3))
def test_after_no_eviction_it_is_attention_over_the_whole(impl, seed, new, old):
    generator = torch.Generator().manual_seed(seed)
    queries, keys, values = (
        torch.randn(2, heads, old + new, 4, generator=generator) for heads in (6, 3, 3)
    )
    old_keys, old_values = (x[..., :old, :].flatten(0, 2) for x in (keys, values))
    positions, offsets = torch.arange(old).repeat(6), torch.arange(7) * old
    cache = reference.RaggedCache(old_keys, old_values, positions, offsets)
    last = queries[..., old:, :]
    output = impl.ragged_attention(last, cache, keys[..., old:, :], values[..., old:, :])
    assert_as_accurate(output, reference.attention, dict(queries=last, keys=keys, values=values))


@pytest.mark.spec("HEX-3.1a")
def test_a_query_that_sees_nothing_reads_nothing(impl):
    none, new = torch.ones(0, 2), torch.ones(1, 2, 2)
    cache = reference.RaggedCache(none, none, torch.arange(0), torch.tensor([0, 0]))
    seen = torch.tensor([False, False])
    output = impl.ragged_attention(new, cache, new, new, seen, causal=False)
    assert_equal(output, torch.zeros_like(new))
    assert_equal(impl.ragged_attention(new, cache, new, new, seen), new)


@pytest.mark.extension
@pytest.mark.spec("HEX-3.1a")
@given(attending())
def test_the_log_sum_exp_is_that_of_every_logit_that_a_query_sees(impl, x):
    assert_as_accurate(impl.ragged_attention(**x, log_sum_exp=True), read_and_sums, x)


@pytest.mark.extension
@pytest.mark.spec("HEX-3.1a")
@given(attending())
def test_attention_to_entries_merges_with_attention_to_new_tokens(impl, x):
    x = cast(x, torch.float64)
    none, cache = x["keys"][..., :0, :], x["cache"]
    old = x | dict(keys=none, values=none, valid=None, causal=False)
    left, read, places = (part[:0] for part in cache[:3])
    new = x | dict(cache=reference.RaggedCache(left, read, places, 0 * cache.offsets))
    found = merged(impl.ragged_attention(**old, log_sum_exp=True), read_and_sums(**new))
    assert_close(found, whole(**x), 2.0**14)  # logits times values


@pytest.mark.extension
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_the_log_sum_exp_of_nothing_is_minus_infinity(impl, dtype):
    none, new = torch.ones(0, 2, dtype=dtype), torch.ones(1, 2, 2, dtype=dtype)
    cache = reference.RaggedCache(none, none, torch.arange(0), torch.tensor([0, 0]))
    seen, wide = torch.tensor([False, False]), torch.promote_types(dtype, torch.float32)
    attended = impl.ragged_attention(new, cache, new, new, seen, False, log_sum_exp=True)
    assert_equal(attended.log_sum_exp, torch.full((1, 2), -torch.inf, dtype=wide))
