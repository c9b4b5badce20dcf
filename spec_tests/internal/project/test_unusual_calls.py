"""Calls of `optimized` with fractions, on extreme scores, under transforms and compiled.

`torch.compile` makes one graph of a call: neither the argument checks nor the body break it.
"""

import warnings
from collections.abc import Callable
from copy import deepcopy
from enum import IntEnum
from fractions import Fraction
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import optimized
import reference
from optimized import kernel_of, trusted
from spec_tests.accuracy import assert_equal
from spec_tests.inputs import GOOD
from spec_tests.report.calls import mapped, tensors


@pytest.mark.parametrize("kv", [reference, optimized])
def test_counts_of_fractions_are_exact_and_members_of_an_enumeration_are_integers(kv):
    """No float is five sixths: the removed share would be more than asked."""
    fraction = Fraction(5, 6)
    assert kv.kept_count(6, ratio=fraction) == kv.retain(torch.rand(6), ratio=fraction).sum() == 1
    assert kv.retain(torch.rand(8), keep=IntEnum("few", {"FOUR": 4}).FOUR).sum() == 4
    keys, x = torch.rand(1, 6, 2), torch.rand(1, 6)
    scored = reference.Scored(x, x < 0)
    assert kv.select(keys, keys, scored, ratio=fraction, refinement=kv.HubSettings()).sum() == 1
    assert torch.equal(kv.gate(x, x / 2, fraction), kv.gate(x, x / 2, 5 / 6))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_equal_scores_beyond_the_positions_of_16_bits_are_ranked_in_order(dtype):
    draw = torch.Generator().manual_seed(0)
    scores = torch.randint(-2, 50, (3, 70_000), generator=draw).to(dtype)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    assert torch.equal(optimized.ranking(scores), order)


@pytest.mark.parametrize("huge", [slice(None), slice(1, None)])
def test_squares_that_underflow_and_sums_that_overflow_are_those_of_the_reference(huge):
    weights = torch.arange(32.0).expand(2, 32, 32).clone()
    weights[huge] = 2e38
    weights[huge, 3, 5], weights[huge, :, 9] = 0, 3e38
    assert_equal(optimized.greedy(weights, 5), reference.greedy(weights, 5))
    scores = torch.tensor([[1.0, 0.0, 1.0, 0.5], [3.0, 1.0, 1.0, 1.0]])[huge]
    for protected in (None, torch.tensor([False, True, False, False]).expand_as(scores)):
        expected = reference.selectivity(scores, protected, epsilon=0.0)
        found = optimized.selectivity(1e-37 * scores, protected, epsilon=0.0)
        torch.testing.assert_close(found, expected)


def faked(call, *x):
    """Return tensors of the shapes of a call's results, without values."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        found = call(*map(mode.from_tensor, x))
    return tuple(torch.ones(part.shape, dtype=part.dtype) for part in found)


TRANSFORMS = {
    "jvp": lambda call, *x: torch.func.jvp(call, x, x)[0],
    "grad": lambda call, *x: torch.func.vjp(call, *x)[0],
    "vmap": lambda call, *x: torch.vmap(call)(*(part[None] for part in x)),
    "fake": faked,
}


@pytest.mark.filterwarnings("ignore:There is a performance drop", "ignore:`torch.jit")
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_call_admits_the_transforms_that_the_reference_admits(transform):
    def varies(part: Tensor) -> bool:
        return part.is_floating_point() and part.numel() > 0

    def call(kv: Any, name: str, *x: Tensor) -> tuple[Tensor, ...]:
        given = iter(x)
        inputs = mapped(lambda part: next(given) if varies(part) else part, GOOD[name])
        return tuple(tensors(getattr(kv, name)(**inputs)))

    admitted = 0
    for name, good in GOOD.items():
        x = [*filter(varies, tensors(good))]
        if not x or name == "train_fastkvzip":
            continue
        with trusted():
            try:
                expected = TRANSFORMS[transform](partial(call, reference, name), *x)
            except Exception:  # whatever the reference cannot do
                continue
            found = TRANSFORMS[transform](partial(call, optimized, name), *x)
        torch.testing.assert_close(found, expected, msg=lambda why, name=name: f"{name}: {why}")
        admitted += 1
    assert admitted >= 40


NO_GRAPH = {
    "draws from a generator": (
        "connecting_swaps double_edge_swaps expander_mask gear_append gear_compress gear_prefill "
        "half_edge_pairing hex_append hex_attention hex_decode hex_prefill hex_read "
        "hex_recompress low_rank random_expander random_order sensitivity subtile_codes "
        "subtile_expander train_fastkvzip"
    ),
    "is as long, or takes as many steps, as the data say": (
        "compress decoding_append decoding_start evict graphkv_compress graphkv_refine "
        "graphkv_select hubkv_compress hubkv_select is_ramanujan kvzip ragged_attention "
        "ramanujan_lift retain second_singular_value select spectral_gap"
    ),
    "computes with NumPy or SciPy": (
        "cheeger_constant component_count conductance is_connected lps_graph lps_mask"
    ),
    "asks for storages": "stored_bytes",
}
UNTRACED = {name for names in NO_GRAPH.values() for name in names.split()}


def trace(function: Callable[..., Any], good: dict[str, Any]) -> None:
    """Compile a function into one graph, and check its result against the function's."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=False)
    # without the patch PyTorch flushes the processor's caches to log the time of the guards
    untimed = patch("torch._dynamo.guards.profile_guard_manager", lambda *_: 0.0, create=True)
    with untimed, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns of caches that it ignores
        traced = compiled(**deepcopy(good))
    assert_equal(traced, function(**deepcopy(good)))


@pytest.mark.parametrize("name", [name for name in GOOD if name not in UNTRACED])
def test_a_call_compiles_into_one_graph(name):
    trace(getattr(optimized, name), GOOD[name])


def test_asking_for_a_kernel_breaks_no_graph():
    def called(scores: torch.Tensor) -> torch.Tensor:
        return scores if kernel_of("smd") is None else 2 * scores

    trace(called, dict(scores=torch.ones(3)))
