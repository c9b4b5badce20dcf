"""Every scorer, refinement, scope and store in the same calls."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.compress.batch_rows import count_entries_per_head
from spec_tests.inputs import SCORED


class Prompt(NamedTuple):
    """Tensors of two layers and two rows of ten tokens, three of them padding in the second row."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    hidden: Tensor
    valid: Tensor


generator = torch.Generator().manual_seed(5)
keys, values, hidden, *queries = torch.randn(5, 2, 2, 2, 10, 4, generator=generator)
VALID = torch.arange(10) >= torch.tensor([0, 3])[:, None]
PROMPT = Prompt(torch.cat(queries, -3), keys, values, hidden[..., 0, :, :], VALID.expand(2, 2, 10))

# The number of tokens that each head keeps by layer and row, for systems that set it.
BUDGETS: dict[str, Callable[[Any, Prompt], Tensor]] = dict(
    pyramidkv=lambda impl, x: impl.pyramidkv_budgets(
        keep=4, layers=2, tokens=x.valid[0].sum(-1), window=2
    ),
    cake=lambda impl, x: impl.cake_budgets(
        impl.cake_preference(x.queries, x.keys, window=2, valid=x.valid),
        keep=4,
        tokens=x.valid[0].sum(-1),
        window=2,
    ),
)
REFINEMENTS = (None, HubSettings(), NmsSettings(), GraphSettings(2))
HEX = HexConfig(block=4, density=0.0, recent=1)


@pytest.fixture(scope="module")
def scored(impl, request) -> tuple[Scored, Tensor | None]:
    """The scores of a scorer, and the budgets of its system, if it sets any."""
    budgets = BUDGETS.get(request.param)
    scorer = SCORED["snapkv" if request.param == "pyramidkv" else request.param]
    return scorer(impl, **PROMPT._asdict()), budgets and budgets(impl, PROMPT)


def pools(budgets: Tensor, scope: str) -> Tensor:
    """Return the budget of each pool, from the budgets of heads by layer."""
    heads = budgets[..., None].expand(2, 2, 2)
    return dict(head=heads, layer=heads.sum(-1), model=heads.sum((0, -1)))[scope]


def crossed(test: Callable[..., None]) -> Any:
    """Parametrise a test with every scorer, refinement and scope."""
    test = pytest.mark.parametrize("scored", [*SCORED, "pyramidkv"], indirect=True)(test)
    names = [type(refinement).__name__ for refinement in REFINEMENTS]
    test = pytest.mark.parametrize("refinement", REFINEMENTS, ids=names)(test)
    return pytest.mark.parametrize("scope", ["head", "layer", "model"])(test)


def compressed(impl, scores, keep, scope, refinement, store=None):
    """Compress the prompt to given budgets, or by half."""
    valid, ratio = VALID if scope == "model" else PROMPT.valid, 0.5 if keep is None else None
    return impl.compress(
        PROMPT.keys, PROMPT.values, scores, keep=keep, ratio=ratio, scope=scope,
        refinement=refinement, valid=valid, store=store,
    )  # fmt: skip


@pytest.mark.spec("HubKV-1", "HubKV-13", "GraphKV-4.1")
@crossed
def test_any_scorer_any_refinement_any_scope_may_evict(impl, scored, refinement, scope):
    scores, budgets = scored
    keep = None if budgets is None else pools(budgets, scope)
    cache = compressed(impl, scores, keep, scope, refinement)
    real = pools(PROMPT.valid.sum(-1), scope)
    kept = count_entries_per_head(cache, PROMPT.keys.shape[:-2])
    heads = dict(head=kept, layer=kept.sum(-1), model=kept.sum((0, -1)))[scope]
    assert_equal(heads, real // 2 if budgets is None else pools(budgets, scope).clone())
    assert impl.stored_bytes(cache) < 2 * PROMPT.keys.nbytes


@pytest.mark.spec("HEX-3.5a", "HubKV-13", "GraphKV-4.1")
@crossed
def test_any_scorer_any_refinement_any_scope_may_choose_for_hex(impl, scored, refinement, scope):
    scores, budgets = scored
    keep = budgets if budgets is None or scope != "model" else budgets.sum(0)
    cache = compressed(impl, scores, keep, scope, refinement, store=HEX)
    (block,) = cache.blocks
    assert not (block.dynamic & ~VALID[:, :8]).any()
    beside = scores.protected[..., :8].any(-2) | (torch.arange(8) == 7)
    assert (block.dynamic | ~beside).all()
    assert (block.dynamic & ~beside).any()
    read, _ = impl.hex_read(cache)
    exact = block.dynamic[..., None, :].expand(2, 2, 2, 8)
    assert_equal(read[..., :8, :][exact], PROMPT.keys[..., :8, :][exact])
    assert_equal(read[..., 8:, :].clone(), PROMPT.keys[..., 8:, :].clone())
