"""Kernels of attention: which are launched, and heads of any length."""

from typing import Any
from unittest.mock import patch

import pytest
import torch

import reference
from optimized import kernels
from optimized.bench.launch_recorder import launched
from optimized.bench.straightforward.rows import normal
from spec_tests.accuracy import assert_as_accurate
from spec_tests.attention.strategies import log_sum_exp
from spec_tests.kernels.interpreter import small_blocks

HALF = torch.bfloat16


@pytest.mark.parametrize(
    ("name", "settings"),
    [("h2o_mass", {}), ("attention_mass", {}), ("snapkv", dict(window=3, kernel=3))],
)
def test_with_the_log_sum_exp_one_kernel_is_launched_and_no_sums_are_found(name, settings):
    x: dict[str, Any] = dict(queries=normal(0, 2, 4, 5, 4), keys=normal(1, 2, 2, 9, 4))
    given = dict(log_sum_exp=log_sum_exp(**x)) | settings
    launches = launched(lambda: getattr(kernels, name)(**x, **given))
    assert [launch.kernel.fn.__name__ for launch in launches] == ["mass_kernel"]


@pytest.mark.parametrize(("count", "dtype"), [(1, torch.float32), (3, HALF)])
def test_ragged_attention_agrees_where_one_head_has_nearly_all_entries(count, dtype):
    sizes = [70, 0, 1, 5]
    entries, new = (sum(sizes), 16), (2, 2, 3, 16)
    stored, offsets = normal(2, 2, *entries).to(dtype), torch.tensor([0, *sizes]).cumsum(0)
    x: dict[str, Any] = dict(
        queries=normal(0, 2, 4, count, 16).to(dtype),
        cache=reference.RaggedCache(stored[0], stored[1], torch.arange(sum(sizes)), offsets),
        keys=normal(4, *new).to(dtype),
        values=normal(5, *new).to(dtype),
        valid=torch.tensor([[True, False, True], [False, True, True]]),
        causal=True,
        scale=None,
    )
    with small_blocks(8):
        found = kernels.ragged_attention(**x)
    assert_as_accurate(found, reference.ragged_attention, x)


@pytest.mark.parametrize("count", [1, 20])
def test_no_program_attends_to_more_than_its_share_of_all_entries(count):
    """The launcher does not know the lengths of heads: one may have all entries."""
    entries, heads = 2**16, 8
    left = torch.empty(entries, 128, dtype=HALF, device="meta")
    places = [torch.empty(n, dtype=torch.int64, device="meta") for n in (entries, heads + 1)]
    cache = reference.RaggedCache(left, left, *places)
    new = torch.empty(heads, count, 128, dtype=HALF, device="meta")
    launch = launched(lambda: kernels.ragged_attention(new, cache, new, new))[0]
    assert launch.arguments["share"] <= 2 * entries / 132
    assert launch.grid[0] <= 3 * 132, "all at once on an H100"


@pytest.mark.parametrize("dtype", [HALF, torch.float16], ids=str)
def test_rows_are_multiplied_as_stored_only_where_all_are_stored_alike(dtype):
    """A product of two dtypes does not compile on a GPU, which the interpreter cannot show."""
    new, left = torch.ones(1, 1, 16, dtype=HALF), torch.ones(3, 16, dtype=dtype)
    cache = reference.RaggedCache(left, left, torch.arange(3), torch.tensor([0, 3]))
    with patch("optimized.kernels._attention_common.InterpretedFunction", ()):
        launches = launched(lambda: kernels.ragged_attention(new, cache, new, new))
    assert launches[0].arguments["NATIVE"] == (dtype == HALF)
