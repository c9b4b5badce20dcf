"""The memory that our scorers allocate; other modules are not tested for it."""

from typing import Any

import pytest
import torch

import optimized
import reference
from spec_tests.attention.strategies import log_sum_exp
from spec_tests.scorers.largest_allocation import largest

ours = pytest.mark.parametrize("module", [reference, optimized])


@ours
@pytest.mark.parametrize("name", ["h2o_mass", "snapkv", "cake", "cake_preference"])
def test_nothing_of_queries_by_tokens_is_allocated(module, name):
    window = dict() if name == "h2o_mass" else dict(window=8)
    x: Any = dict(queries=torch.ones(2, 300, 1), keys=torch.ones(1, 300, 1))
    assert largest(getattr(module, name), **x, **window) < 300 * 300
    if name in ("h2o_mass", "snapkv"):
        sums = log_sum_exp(**x)
        assert largest(getattr(module, name), **x, **window, log_sum_exp=sums) < 300 * 300


@ours
def test_no_more_than_a_block_of_queries_meets_the_chunk_at_once(module):
    tokens = repeat = 640
    keys, echoes = torch.zeros(1, tokens, 1), torch.zeros(1, repeat, 1)
    work = dict(queries=(echoes,), keys=keys, repeat_keys=(echoes,))
    assert largest(module.kvzip, **work) < tokens * repeat / 2
