"""Properties of every kernel, whatever it computes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import optimized
import reference
from optimized import kernels
from optimized.bench.launch_recorder import recorded
from reference.contract.enforce import trusted
from spec_tests.accuracy import assert_as_accurate, assert_equal, cast
from spec_tests.graphkv.refine.strategies import graphkv_refine
from spec_tests.inputs import INPUTS
from spec_tests.kernels.interpreter import ORDERS, programs_in_order, small_blocks
from spec_tests.mutants.patched_source import patched_kernels
from spec_tests.report.calls import mapped

every_kernel = pytest.mark.parametrize("name", kernels.__all__)
WAITS = {"evict", "hex_compress"}  # for the size of the result
SMALL = INPUTS | {"graphkv_refine": graphkv_refine(batch=(), per_head=False, fraction=0.3)}
"""Strategies for inputs of few programs; a call of GraphKV is four launches of many programs."""

few = settings(max_examples=4)  # each example runs several programs in several orders
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


@every_kernel
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


def test_a_copy_of_the_kernels_that_tells_no_lie_agrees():
    """An unchanged copy agrees, so that a mutant fails by its change alone."""
    names = patched_kernels("hubkv/discount.py", "hub", "hub", block=8)
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
@every_kernel
@few
@given(data=st.data())
def test_no_kernel_runs_where_gradients_are_asked_for(impl, name, data):
    """Kernels have no backward pass: their result would silently count as a constant."""
    inputs = cast(data.draw(SMALL[name]), torch.float32)
    learning = mapped(lambda x: x.clone().requires_grad_(x.is_floating_point()), inputs)
    with recorded() as launches:
        getattr(impl, name)(**learning)
    assert not launches
