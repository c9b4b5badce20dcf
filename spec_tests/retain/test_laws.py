"""The entries that a budget keeps: HubKV §2.1 and §3.1, GraphKV §4.1."""

from itertools import product

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.retain.strategies import AXES, flatten_pools, scores_to_rank
from spec_tests.strategies import grid

TIED = torch.tensor([[0.0, 1.0, 0.0], [0.1, 0.1, 0.0]], dtype=torch.float64)
"""Scores of 64 bits whose last bit matters; one of the two pools has ties."""

LAYERS = torch.arange(24.0).view(2, 2, 2, 3)
"""Two layers of two batch rows of two heads."""

every_scope = pytest.mark.parametrize("scope", AXES)
LAYOUT = {"head": (), "layer": (2,), "model": (2, 1, 2)}
SOME = (1, 2, 7, 20, 96, 99, 100, 300)


def budgets(x):
    """Return the budget of each pool, by integer arithmetic."""
    pools = flatten_pools(x["scores"], x["scope"])
    if x["ratio"] is None:
        return torch.as_tensor(x["keep"]).expand(pools.shape[:-1])
    left = pools.shape[-1] * (100 - round(x["ratio"] * 100)) // 100
    return torch.tensor(left).expand(pools.shape[:-1])


def shielded(x):
    """Return the protected mask, or a false one if there is none."""
    none = torch.zeros(x["scores"].shape, dtype=torch.bool)
    return none if x["protected"] is None else x["protected"]


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
    shields = rows(shielded(x), x["scope"])
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
def test_the_modular_utility_adds_up_over_disjoint_sets(impl, x):
    scores, kept = x["scores"].clamp(min=-4.0), x["kept"]
    parts = impl.modular_utility(scores, kept) + impl.modular_utility(scores, ~kept)
    whole = scores.double().sum(-1)
    assert_close(parts, whole, scores.abs().double().sum(-1))
    assert_close(impl.modular_utility(scores, torch.ones_like(kept)), whole, scores.abs().sum(-1))
    assert_equal(impl.modular_utility(scores, kept & ~kept), torch.zeros_like(parts))
    for i in range(scores.shape[-1]):
        alone = torch.zeros_like(kept)
        alone[..., i] = True
        assert_equal(impl.modular_utility(scores, alone), scores[..., i])


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


@pytest.mark.slow_interpreted
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


@pytest.mark.spec("HubKV-3")
@pytest.mark.parametrize("keep", range(13))
def test_equal_scores_over_a_model_go_by_layer_then_head_then_position(impl, keep):
    kept = impl.retain(torch.zeros(2, 2, 3), keep=keep, scope="model")
    order = [(layer, head, i) for layer in range(2) for head in range(2) for i in range(3)]
    assert {*map(tuple, kept.nonzero().tolist())} == {*order[:keep]}


@pytest.mark.spec("HubKV-3")
@given(scores_to_rank(2, 3, 2, 4), st.integers(0, 16))
def test_each_batch_row_is_a_model_of_its_own(impl, scores, keep):
    together = impl.retain(scores, keep=keep, scope="model")
    alone = [impl.retain(scores[:, row], keep=keep, scope="model") for row in range(3)]
    assert_equal(together, torch.stack(alone, 1))


@pytest.mark.spec("HubKV-3")
@given(scores_to_rank(3, 5), st.integers(0, 5), st.permutations(range(3)))
def test_heads_may_change_places(impl, scores, keep, order):
    assert_equal(impl.retain(scores[order], keep=keep), impl.retain(scores, keep=keep)[order])


@pytest.mark.spec("HubKV-3")
@pytest.mark.parametrize(("scope", "axis"), [("layer", -2), ("model", 0), ("model", -2)])
@given(data=st.data())
def test_heads_and_layers_may_change_places_where_no_two_scores_tie(impl, scope, axis, data):
    distinct = torch.tensor(data.draw(st.permutations(range(24)))).float().reshape(3, 2, 4)
    tied, keep = data.draw(scores_to_rank(3, 2, 4)), data.draw(st.integers(0, 8))
    order = torch.tensor(data.draw(st.permutations(range(distinct.shape[axis]))))
    kept, moved = (
        impl.retain(scores, keep=keep, scope=scope)
        for scores in (distinct, distinct.index_select(axis, order))
    )
    assert_equal(moved, kept.index_select(axis, order))
    # ties may be decided otherwise, but the kept scores are the same
    before, after = (
        flatten_pools(scores.masked_fill(~impl.retain(scores, keep=keep, scope=scope), 9.0), scope)
        for scores in (tied, tied.index_select(axis, order))
    )
    ranked = [scores.flatten().add(0.0).sort().values for scores in (before, after)]
    assert_equal(*ranked)


@pytest.mark.spec("HubKV-1")
def test_the_budget_is_the_exact_floor_of_what_is_not_removed(impl):
    for pool, hundredths in product(range(301), range(101)):
        assert impl.kept_count(pool, hundredths / 100) == pool * (100 - hundredths) // 100


@pytest.mark.spec("HubKV-1")
@given(INPUTS["kept_count"])
def test_at_least_the_ratio_is_removed_and_hardly_more(impl, x):
    kept = impl.kept_count(**x)
    assert 0 <= kept <= x["pool"]
    assert impl.kept_count(x["pool"] + 1, x["ratio"]) - kept in (0, 1)


@pytest.mark.argument_checks
@pytest.mark.spec("HubKV-1")
@pytest.mark.parametrize("value", [torch.nan, torch.inf], ids=str)
@pytest.mark.parametrize("name", ["ranking", "retain"])
def test_what_has_no_place_in_the_order_is_refused(impl, name, value):
    scores = torch.tensor([0.5, value, 0.25])
    budget = dict(keep=1) if name == "retain" else {}
    with impl.refuses("scores"):
        getattr(impl, name)(scores, **budget)


@pytest.mark.spec("HubKV-1")
@every_scope
def test_a_ratio_that_cannot_hold_the_protected_entries_is_refused(impl, scope):
    protected = torch.ones(2, 2, 4, dtype=torch.bool)
    with impl.refuses("ratio"):
        impl.retain(torch.zeros(2, 2, 4), protected, ratio=0.25, scope=scope)
    assert impl.retain(torch.zeros(2, 2, 4), protected, ratio=0.0, scope=scope).all()


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(INPUTS["retain"])
@example(dict(scores=TIED, protected=None, keep=1, ratio=None, scope="head"))
def test_counts_are_exact_with_evicted_and_protected_entries_too(impl, x):
    kept = impl.retain(**x)
    assert_equal(flatten_pools(kept, x["scope"]).sum(-1), budgets(x).clone())


@pytest.mark.spec("HubKV-1")
@given(INPUTS["retain"])
def test_protected_entries_are_kept_whatever_their_score(impl, x):
    shields = shielded(x)
    assert (impl.retain(**x) | ~shields).all()


@pytest.mark.spec("HubKV-1")
@given(INPUTS["retain"], st.sampled_from([-100.0, 0.0, 0.5, 1.0, 100.0]))
def test_the_scores_of_protected_entries_are_never_read(impl, x, value):
    shields = shielded(x)
    replaced = x | dict(scores=x["scores"].masked_fill(shields, value))
    assert_equal(impl.retain(**replaced), impl.retain(**x))


@pytest.mark.slow_interpreted
@pytest.mark.spec("HubKV-1")
@every_scope
def test_every_pool_keeps_exactly_its_budget(impl, scope):
    """Every N with another ratio, and every ratio with a few N."""
    cases = [(n, 37 * n % 101) for n in range(301)] + [*product(SOME, range(101))]
    for tokens, hundredths in cases:
        scores = (torch.arange(tokens) * 7 % 5 / 4).expand(*LAYOUT[scope], tokens)
        kept = impl.retain(scores, ratio=hundredths / 100, scope=scope)
        size = kept.numel()
        assert int(kept.sum()) == size * (100 - hundredths) // 100, (tokens, hundredths)


@pytest.mark.spec("HubKV-1")
@given(scores_to_rank(2, 3, 5), st.lists(st.integers(0, 5), min_size=6, max_size=6))
def test_a_tensor_of_budgets_serves_each_head_as_if_alone(impl, scores, keep):
    budget = torch.tensor(keep).reshape(2, 3)
    kept = impl.retain(scores, keep=budget)
    for head in product(range(2), range(3)):
        assert_equal(kept[head], impl.retain(scores[head], keep=int(budget[head])))
