"""HubKV as a whole: one ranking of the model, protected ends, a clipped window: A.1."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reference import HexConfig, HubSettings, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.compress.batch_rows import count_entries_per_head, kept_mask, row_indices_and_starts
from spec_tests.inputs import INPUTS
from spec_tests.refinement.strategies import DECIDED, HUBS, settings_id, spread, unprotected_scores
from spec_tests.strategies import gaussian_tensor

WINDOW = "recent window clipped"
SUITE = Path(__file__).parents[2]


def ends(x):
    """Mark the sinks and the recent window of each row, and the tokens that the scorer protects."""
    scores, protected = x["scored"]
    marked = protected.clone()
    for row, start in row_indices_and_starts(x):
        tokens = scores.shape[-1] - start
        window = tokens // 50 if x["recent"] is None else x["recent"]
        position = torch.arange(tokens)
        marked[row][..., start:] |= (position < x["sinks"]) | (position >= tokens - window)
    return marked


@pytest.mark.spec("HubKV-11", "HubKV-13")
@given(INPUTS["hubkv_compress"])
def test_it_is_the_four_calls_around_both_ends(impl, x):
    plain = {k: v for k, v in x.items() if k not in ("sinks", "recent")}
    plain |= dict(scored=Scored(x["scored"].scores, ends(x)))
    assert_equal(impl.hubkv_compress(**x), impl.compress(**plain))


@pytest.mark.spec("HubKV-13")
@pytest.mark.parametrize("settings", HUBS, ids=settings_id)
def test_what_is_kept_ranks_first_by_the_refined_scores(impl, settings):
    x: dict[str, Any] = DECIDED | dict(ratio=0.5, sinks=1, recent=1)
    scores, aside = x["scored"].scores, ends(x | dict(valid=None, scope="model"))
    refined = impl.hubkv_refine(scores, ratio=0.5, protected=aside, **settings._asdict())
    kept = impl.hubkv_select(**x, refinement=settings)
    assert (kept | ~aside).all()
    assert kept.sum() == kept.numel() // 2
    assert refined[kept & ~aside].min() >= refined[~kept].max()


@st.composite
def crowded(draw):
    """Inputs whose window exceeds the budget, in each scope, with or without padding."""
    scope = draw(st.sampled_from(["head", "layer", "model"]))
    layers, heads, tokens = draw(st.integers(1, 2)), draw(st.integers(1, 2)), 12
    sinks, room = draw(st.integers(0, 2)), draw(st.integers(0, 4))
    pool = dict(head=1, layer=heads, model=layers * heads)[scope]
    extra = draw(st.integers(0, pool - 1))
    scores = draw(gaussian_tensor(layers, 2, heads, tokens)).abs()
    starts = torch.tensor([[0], [draw(st.integers(0, 3))]])
    valid = torch.arange(tokens) >= starts
    if scope != "model":
        valid = valid.expand(layers, 2, tokens)
    there = spread(valid, scores.shape, scope)
    x = dict(
        keys=scores[..., None], values=scores[..., None],
        scored=unprotected_scores(scores.where(there, 0)),
        keep=pool * (sinks + room) + extra, ratio=None, scope=scope, sinks=sinks,
        recent=room + 2, valid=valid,
    )  # fmt: skip
    return x, room


@pytest.mark.spec("HubKV-11")
@given(crowded())
def test_the_window_gives_way_and_says_so(impl, x):
    x, room = x
    shape = x["scored"].scores.shape
    with pytest.warns(UserWarning, match=f"{WINDOW} by 2 tokens") as caught:
        cache = impl.hubkv_compress(**x)
    if impl.ours and impl.checks_arguments:  # the warning names the caller's file
        assert Path(caught[0].filename).is_relative_to(SUITE)
    kept = kept_mask(cache, shape)
    for row, start in row_indices_and_starts(x):
        assert kept[row][..., start : start + x["sinks"]].all()
        assert kept[row][..., shape[-1] - room :].all()
    total = count_entries_per_head(cache, shape[:-1])
    pools = shape[:-1].numel() * x["keep"] // dict(
        head=1, layer=shape[-2], model=shape[0] * shape[-2]
    )[x["scope"]]  # fmt: skip
    assert total.sum() == pools


@pytest.mark.spec("HubKV-1")
def test_layers_compete_with_each_other_by_default(impl):
    keys = torch.ones(2, 1, 1, 8, 2)
    scores = torch.stack([torch.full((1, 1, 8), 0.25), torch.full((1, 1, 8), 0.75)])
    scored = unprotected_scores(scores)
    cache = impl.hubkv_compress(keys, keys, scored, ratio=0.5, sinks=0)
    assert count_entries_per_head(cache, scores.shape[:-1]).flatten().tolist() == [0, 8]


@pytest.mark.spec("HubKV-11", "HEX-3.5a")
@pytest.mark.parametrize("mode", ["append", "full", "oracle"])
def test_in_hex_the_ends_need_no_budget(impl, mode):
    keys = torch.ones(1, 1, 8, 2)
    scored = unprotected_scores(torch.ones(1, 1, 8))
    config = HexConfig(block=8, density=0.0, recent=0, mode=mode)
    try:
        cache = impl.hubkv_compress(
            keys, keys, scored, keep=1, sinks=2, recent=2, scope="head", store=config,
            refinement=HubSettings(radius=1),
        )  # fmt: skip
    except ValueError as refusal:
        pytest.fail(f"refused: {refusal}")
    assert cache.blocks[0].dynamic.int().tolist() == [[1, 1, 1, 0, 0, 0, 1, 1]]


@st.composite
def sharing(draw):
    """Layers of one or two heads with unequal budgets."""
    scope = draw(st.sampled_from(["head", "layer"]))
    layers, heads, tokens = draw(st.integers(2, 3)), draw(st.integers(1, 2)), 12
    scores = draw(gaussian_tensor(layers, heads, tokens)).abs()
    keep = draw(st.lists(st.integers(0, tokens), min_size=layers, max_size=layers))
    return scores, torch.tensor(keep), scope


@pytest.mark.spec("HubKV-10", "HubKV-13")
@given(sharing())
def test_each_layer_with_a_budget_of_its_own_has_a_gate_of_its_own(impl, x):
    scores, keep, scope = x
    heads, tokens = scores.shape[1:]
    keys = scores[..., None]
    how = dict(scope=scope, sinks=0, recent=0)
    pools = keep[:, None].expand(-1, heads) if scope == "head" else keep * heads
    kept = impl.hubkv_select(keys, keys, unprotected_scores(scores), keep=pools, **how)
    for layer, count in enumerate(keep.tolist()):
        refined = impl.hubkv_refine(scores[layer], 1 - count / tokens)
        pool = count if scope == "head" else count * heads
        assert_equal(kept[layer], impl.retain(refined, keep=pool, scope=scope))
