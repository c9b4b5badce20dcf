"""Properties of every kernel, whatever it computes."""

import re
from unittest.mock import patch

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

import optimized
import reference
from optimized import kernels, vector
from optimized.bench.launch_recorder import launched, recorded
from optimized.bench.operations import moved
from reference.contract.enforce import trusted
from spec_tests.accuracy import assert_as_accurate, assert_equal, cast
from spec_tests.graphkv.refine.strategies import graphkv_refine
from spec_tests.inputs import INPUTS
from spec_tests.kernels.interpreter import ORDERS, programs_in_order, small_blocks
from spec_tests.mutants.patched_source import patched_kernels
from spec_tests.report.calls import mapped

every_row = pytest.mark.parametrize("name", kernels.__all__)
WAITS = {"evict", "hex_compress"}  # for the size of the result
every_row_that_waits_for_nothing = pytest.mark.parametrize(
    "name", [name for name in kernels.__all__ if name not in WAITS]
)
SMALL = INPUTS | {"graphkv_refine": graphkv_refine(batch=(), per_head=False, fraction=0.3)}
"""Strategies for inputs of few programs; a call of GraphKV is four launches of many programs."""

few = settings(max_examples=4)  # each example runs several programs in several orders
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


@every_row
@few
@given(data=st.data(), dtype=dtypes, size=st.sampled_from([2, 4, 8]))
def test_programs_give_the_same_bits_in_any_order(name, data, dtype, size):
    inputs = cast(data.draw(SMALL[name]), dtype)
    kernel = getattr(kernels, name)
    with small_blocks(size):
        found = kernel(**inputs)
        for order in ORDERS.values():
            with programs_in_order(order):
                assert_equal(kernel(**inputs), found)
    assert_as_accurate(found, getattr(reference, name), inputs)


@pytest.mark.parametrize("scale", [2.0**-73, 2.0**-100])
def test_heads_weigh_alike_where_squares_of_their_scores_underflow(scale):
    scores = torch.rand(1, 4, 200, generator=torch.Generator().manual_seed(0))
    scores **= torch.arange(1, 5)[:, None]
    given = dict(ratio=0.9, tau=2.0, minimum=0.5, maximum=2.0, epsilon=0.0)
    for kv in (reference, optimized, kernels):
        refined, small = (kv.hubkv_refine(scores=scores * x, **given) for x in (1, scale))
        torch.testing.assert_close(small / scale, refined)


@every_row_that_waits_for_nothing
@few
@given(data=st.data(), dtype=dtypes)
def test_a_trusted_launch_looks_at_no_value(name, data, dtype):
    """Tensors without values raise where a launcher reads one; else a graph can capture it."""
    inputs = {
        argument: moved(value, torch.device("meta"))
        for argument, value in cast(data.draw(SMALL[name]), dtype).items()
    }
    # the vectorised body may read values, so it is replaced
    with patch.object(vector, name):
        launched(lambda: getattr(kernels, name)(**inputs))


@triton.jit
def raced(target):
    tl.store(target, tl.program_id(0) * 12 + tl.program_id(1) * 4 + tl.program_id(2))


def test_a_race_between_programs_is_seen():
    target, grid = torch.zeros(1, dtype=torch.int32), (2, 3, 4)
    raced[grid](target)
    assert target.item() == 23, "the last program wins"
    with programs_in_order(ORDERS["backwards"]):
        raced[grid](target)
    assert target.item() == 0, "which now is the first"


def test_a_grid_that_no_gpu_takes_is_seen():
    with pytest.raises(AssertionError, match="a grid of"):
        raced[1, 2**16](torch.zeros(1, dtype=torch.int32))


class SortsNothing(TorchDispatchMode):
    """Raise at operations that sort; those that wait raise on tensors without values."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        assert not re.match("sort|topk|kthvalue|unique", func.__name__), func.__name__
        return func(*args, **kwargs or {})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("scope", ["head", "layer", "model"])
def test_selection_sorts_nothing(dtype, scope):
    scores = torch.empty(2, 3, 4, 50, dtype=dtype, device="meta")
    with SortsNothing():
        launches = launched(lambda: kernels.retain(scores, scores > 0, ratio=0.5, scope=scope))
    assert [launch.kernel.fn.__name__ for launch in launches][-2:] == ["cut_kernel", "mark_kernel"]
    with pytest.raises(AssertionError, match="topk"), SortsNothing():
        scores.topk(2)


@pytest.mark.parametrize("scope", ["head", "layer", "model"])
@pytest.mark.parametrize("tokens", [64, 75])
def test_halves_of_several_tiles_are_kept_as_the_specification_does(scope, tokens):
    """Scores have few values, so that ties occur in all tiles of a pool.

    The mask is the same for all rows, or absent.
    """
    generator = torch.Generator().manual_seed(tokens)
    scores = torch.randint(-3, 4, (2, 4, tokens), generator=generator).bfloat16() * 0.5
    protected = (torch.rand(tokens, generator=generator) < 0.2).expand(scores.shape)
    with small_blocks(32):
        for shield in (None, protected):
            found = kernels.retain(scores, shield, ratio=0.45, scope=scope)
            assert_equal(found, reference.retain(scores, shield, ratio=0.45, scope=scope))


@pytest.mark.parametrize("block", [2, 8])
def test_a_copy_of_the_kernels_that_tells_no_lie_agrees(block):
    """An unchanged copy agrees, so that a mutant fails by its change alone."""
    names = patched_kernels("hubkv/discount.py", "hub", "hub", block)
    scores = torch.rand(2, 3, 20, generator=torch.Generator().manual_seed(0))
    for name, x in {"smd": {}, "hubkv_refine": {"ratio": 0.5}, "retain": {"keep": 5}}.items():
        assert names[name] is not getattr(optimized, name)
        with trusted(), recorded() as launches:
            names[name](scores, **x)
        assert launches
        inputs = {"scores": scores} | x
        assert_as_accurate(names[name](**inputs), getattr(reference, name), inputs)


@pytest.mark.ours_only
@pytest.mark.own_body
@every_row
@few
@given(data=st.data())
def test_no_kernel_runs_where_gradients_are_asked_for(impl, name, data):
    """Kernels have no backward pass: their result would silently count as a constant."""
    inputs = cast(data.draw(SMALL[name]), torch.float32)
    asked = mapped(lambda x: x.clone().requires_grad_(x.is_floating_point()), inputs)
    with recorded() as launches:
        getattr(impl, name)(**asked)
    assert not launches
