"""The entries that a budget keeps: HubKV §2.1 and §3.1, GraphKV §4.1."""

from itertools import product

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.retain.strategies import AXES, flatten_pools
from spec_tests.strategies import grid

TIED = torch.tensor([[0.0, 1.0, 0.0], [0.1, 0.1, 0.0]], dtype=torch.float64)
"""Scores of 64 bits whose last bit matters; one of the two pools has ties."""

LAYERS = torch.arange(24.0).view(2, 2, 2, 3)
"""Two layers of two batch rows of two heads."""

every_scope = pytest.mark.parametrize("scope", AXES)


def budgets(x):
    """Return the budget of each pool, by integer arithmetic."""
    pools = flatten_pools(x["scores"], x["scope"])
    if x["ratio"] is None:
        return torch.as_tensor(x["keep"]).expand(pools.shape[:-1])
    left = pools.shape[-1] * (100 - round(x["ratio"] * 100)) // 100
    return torch.tensor(left).expand(pools.shape[:-1])


def rows(mask, scope):
    """Return the pools of a mask as rows."""
    pools = flatten_pools(mask, scope)
    return pools.reshape(pools.shape[:-1].numel(), pools.shape[-1])


def assert_cut(impl, scores, protected, hundredths, scope):
    """Assert that each pool keeps the first of a stable sort, protected entries first."""
    shields = rows(scores.masked_fill(protected, torch.inf), scope)
    order = shields.sort(dim=-1, descending=True, stable=True).indices
    expected = torch.zeros_like(shields, dtype=torch.bool)
    budget = shields.shape[-1] * (100 - hundredths) // 100
    expected.scatter_(-1, order[:, :budget], True)
    kept = impl.retain(scores, protected, ratio=hundredths / 100, scope=scope)
    assert_equal(rows(kept, scope), expected)


@pytest.mark.spec("HubKV-1", "HubKV-3", "GraphKV-4.1")
@given(INPUTS["retain"])
@example(dict(scores=TIED, protected=None, keep=1, ratio=None, scope="head"))
@example(dict(scores=LAYERS * 0, protected=None, keep=5, ratio=None, scope="model"))
@example(dict(scores=LAYERS, protected=None, keep=3, ratio=None, scope="model"))
def test_pools_are_filled_in_the_total_order(impl, x):
    """Protected entries first, then by descending score, then by ascending index."""
    kept, scores = rows(impl.retain(**x), x["scope"]), rows(x["scores"], x["scope"]).tolist()
    protected = x["protected"]
    protected = torch.zeros_like(x["scores"]).bool() if protected is None else protected
    shields = rows(protected, x["scope"])
    for mask, values, shield, budget in zip(
        kept.tolist(), scores, shields.tolist(), budgets(x).flatten().tolist(), strict=True
    ):
        order = sorted(range(len(values)), key=lambda i: (not shield[i], -values[i], i))
        assert [i for i, keep in enumerate(mask) if keep] == sorted(order[:budget])


@pytest.mark.spec("HubKV-3")
@given(grid(8, high=6), st.integers(0, 8))
def test_top_k_maximises_the_modular_utility(impl, scores, keep):
    """Over every subset of at most B entries, for non-negative scores."""
    subsets = torch.tensor([*product([False, True], repeat=8)])
    subsets = subsets[subsets.sum(-1) <= keep]
    utilities = impl.modular_utility(scores.expand(len(subsets), 8), subsets)
    assert_equal(impl.modular_utility(scores, impl.retain(scores, keep=keep)), utilities.max())


@pytest.mark.spec("HubKV-3")
@given(INPUTS["modular_utility"])
def test_the_modular_utility_is_the_sum_of_the_kept_scores(impl, x):
    scores, kept = x["scores"].clamp(min=-4.0), x["kept"]
    exact = scores.double().where(kept, 0)
    assert_close(impl.modular_utility(scores, kept), exact.sum(-1), exact.abs().sum(-1))


@pytest.mark.spec("HubKV-3")
@given(INPUTS["ranking"])
def test_a_ranking_visits_every_position_best_first_and_ties_in_order(impl, x):
    places, scores = impl.ranking(**x), x["scores"]
    positions = torch.arange(scores.shape[-1]).expand(scores.shape)
    assert_equal(places.sort(-1).values, positions.clone())
    ranked = scores.gather(-1, places)
    before, after = ranked[..., :-1], ranked[..., 1:]
    assert ((before > after) | (before == after) & (places[..., :-1] < places[..., 1:])).all()


@pytest.mark.spec("HubKV-3")
@every_scope
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_few_values_of_half_precision_are_cut_exactly(impl, scope, dtype):
    """Ties on both sides of the edges between blocks, and zeros of both signs."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-3, 4, (2, 2, 75), generator=generator).to(dtype) / 2
    scores[..., ::7] = -0.0
    scores[..., ::13] = -torch.inf
    protected = torch.rand(scores.shape, generator=generator) < 0.2
    assert_cut(impl, scores, protected, 50, scope)


@pytest.mark.spec("HubKV-3")
@every_scope
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_long_contexts_are_cut_exactly(impl, scope, dtype):
    """Long enough for counting sorts and radix digits: both signs, many ties, both zeros."""
    generator = torch.Generator().manual_seed(0)
    fine, coarse = torch.randn(2, 2, 20_000, generator=generator)
    coarse = torch.where(coarse < 0.25, coarse * 0, (coarse * 4).round())
    scores = torch.stack([fine, coarse]).to(dtype)
    scores[..., ::97] = -torch.inf
    protected = torch.zeros_like(scores, dtype=torch.bool)
    protected[..., 5:9_000:1_000] = True
    for hundredths in (5, 50, 95, 99):
        assert_cut(impl, scores, protected, hundredths, scope)
    nothing = impl.retain(scores, ratio=1.0, scope=scope)
    assert not nothing.any()


@pytest.mark.spec("HubKV-1")
def test_the_budget_is_the_exact_floor_of_what_is_not_removed(impl):
    for pool, hundredths in product(range(301), range(101)):
        assert impl.kept_count(pool, hundredths / 100) == pool * (100 - hundredths) // 100
