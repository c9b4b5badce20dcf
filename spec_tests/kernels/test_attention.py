"""Kernels of attention: calls that fall back to PyTorch, full tiles, heads of any length."""

from typing import Any
from unittest.mock import patch

import pytest
import torch

import reference
from optimized import kernels
from optimized.bench.launch_recorder import launched
from spec_tests.accuracy import assert_as_accurate
from spec_tests.attention.strategies import log_sum_exp
from spec_tests.kernels.interpreter import small_blocks


def normal(seed, *shape):
    """Return Gaussian numbers."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer(count=5, tokens=9, width=4, dtype=torch.float32) -> dict[str, Any]:
    """Return queries and keys of two rows, two key heads and four query heads."""
    return dict(
        queries=normal(0, 2, 4, count, width).to(dtype),
        keys=normal(1, 2, 2, tokens, width).to(dtype),
    )


REST: dict[str, dict[str, Any]] = dict(
    h2o_mass=dict(mass=None, valid=None, log_sum_exp=None),
    attention_mass=dict(span=None, causal=True, normalize=False, log_sum_exp=None),
    snapkv=dict(window=3, kernel=3, pooling="max", valid=None, log_sum_exp=None),
)
every_mass = pytest.mark.parametrize("name", REST)


@every_mass
def test_with_the_log_sum_exp_one_kernel_is_launched_and_no_sums_are_found(name):
    x = layer()
    rest = dict(log_sum_exp=log_sum_exp(**x))
    launches = launched(lambda: getattr(kernels, name)(**x, **REST[name] | rest))
    assert [launch.kernel.fn.__name__ for launch in launches] == ["mass_kernel"]


@every_mass
@pytest.mark.parametrize(("count", "tokens"), [(20, 20), (13, 21), (3, 20)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("known", [False, True])
def test_mass_agrees_over_several_tiles_of_full_width(name, count, tokens, dtype, known):
    x = layer(count, tokens, 16, dtype) | REST[name]
    if "valid" in x:
        x["valid"] = torch.arange(tokens) >= torch.tensor([[0], [11]])
    if known:
        x["log_sum_exp"] = log_sum_exp(
            x["queries"].float(), x["keys"].float(), valid=x.get("valid")
        )
    with small_blocks(32 if dtype == torch.float32 else 8):  # float32 takes a quarter
        found = getattr(kernels, name)(**x)
    assert_as_accurate(found, getattr(reference, name), x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("count", [1, 3])
def test_ragged_attention_agrees_where_one_head_has_nearly_all_entries(count, dtype):
    sizes = [70, 0, 1, 5]
    stored = [normal(seed, sum(sizes), 16).to(dtype) for seed in (2, 3)]
    new = (2, 2, 3, 16)
    offsets = torch.tensor([0, *sizes]).cumsum(0)
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
    left = torch.empty(entries, 128, dtype=torch.bfloat16, device="meta")
    places = [torch.empty(n, dtype=torch.int64, device="meta") for n in (entries, heads + 1)]
    cache = reference.RaggedCache(left, left, *places)
    new = torch.empty(heads, count, 128, dtype=torch.bfloat16, device="meta")
    launch = launched(lambda: kernels.ragged_attention(new, cache, new, new))[0]
    assert launch.arguments["share"] <= 2 * entries / 132
    assert launch.grid[0] <= 3 * 132, "all at once on an H100"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_rows_are_multiplied_as_stored_only_where_all_are_stored_alike(dtype):
    """A product of two dtypes does not compile on a GPU, which the interpreter cannot show."""
    new, left = torch.ones(1, 1, 16, dtype=torch.bfloat16), torch.ones(3, 16, dtype=dtype)
    cache = reference.RaggedCache(left, left, torch.arange(3), torch.tensor([0, 3]))
    with patch("optimized.kernels._attention_common.InterpretedFunction", ()):
        launches = launched(lambda: kernels.ragged_attention(new, cache, new, new))
    assert launches[0].arguments["NATIVE"] == (dtype == torch.bfloat16)
