"""Strategies for scores to select among."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference.contract.preconditions import AXES
from spec_tests.strategies import (
    Refusal,
    booleans,
    generators,
    importance,
    mask_or_none,
    of_one_shape,
)

LEADING = {
    "head": [(), (1,), (3,), (2, 2), (0, 2)],
    "layer": [(1,), (3,), (2, 2), (0, 2), (2, 0)],
    "model": [(2, 2), (1, 3), (3, 2, 2), (2, 2, 1, 2), (0, 2), (2, 0, 2)],
}
"""Axes before the tokens in each scope, empty axes included."""

ratios = st.integers(0, 100).map(lambda hundredths: hundredths / 100)
decimals = st.floats(0, 1).map(lambda ratio: round(ratio, 12))


@st.composite
def scores_to_rank(draw, *shape):
    """Scores of few values, zeros of both signs and evicted tokens among them, or of many."""
    if draw(st.booleans()):
        return draw(importance(*shape, low=-16))
    values = st.sampled_from([-torch.inf, -1.0, -0.0, 0.0, 0.0, 0.25, 0.5, 0.5, 3.0])
    size = torch.Size(shape).numel()
    drawn = draw(st.lists(values, min_size=size, max_size=size))
    return torch.tensor(drawn, dtype=torch.float32).reshape(shape)


def flatten_pools(scores, scope):
    """Return one row for each pool, its entries in order of (layer, head, position)."""
    if scope == "model":
        scores = scores.movedim(0, -3)
    return scores.flatten(-AXES[scope])


FORMS = ("number", "tensor", "ratio")


@st.composite
def budgets(draw, needed: Tensor, sizes: Tensor, pool: int, forms=FORMS) -> Any:
    """A budget in one of its forms, enough for the protected entries of each pool."""
    least = int(needed.max()) if needed.numel() else 0
    form = draw(st.sampled_from(forms))
    if form == "number":
        return dict(keep=draw(st.integers(least, pool)), ratio=None)
    if form == "tensor":
        counts = torch.randint(least, pool + 1, needed.shape, generator=draw(generators))
        return dict(keep=counts, ratio=None)
    roomy = [c for c in range(101) if ((sizes * (100 - c)) // 100 >= needed).all()]
    return dict(keep=None, ratio=draw(st.sampled_from(roomy)) / 100)


@st.composite
def retain(draw):
    """Inputs with any scope, any protected tokens, and any form of a budget that holds them."""
    scope = draw(st.sampled_from([*AXES]))
    shape = (*draw(st.sampled_from(LEADING[scope])), draw(st.integers(0, 8)))
    scores, protected = draw(scores_to_rank(*shape)), draw(mask_or_none(*shape))
    *pools, size = flatten_pools(scores, scope).shape
    needed = torch.zeros(pools, dtype=torch.int64)
    if protected is not None:
        needed = flatten_pools(protected, scope).sum(-1)
    budget = draw(budgets(needed, torch.full_like(needed, size), size))
    return dict(scores=scores, protected=protected, **budget, scope=scope)


INPUTS = dict(
    kept_count=dict(pool=st.integers(0, 10**6), ratio=ratios | decimals),
    ranking=of_one_shape(scores=scores_to_rank),
    modular_utility=of_one_shape(scores=scores_to_rank, kept=booleans),
)

scores = torch.tensor([[[0.5, 0.25, 0.75, 0.0], [1.0, 0.5, 0.0, 0.5]]])
mask = torch.tensor([[[True, False, False, True], [False, True, True, False]]])

GOOD = dict(
    kept_count=dict(pool=100, ratio=0.9),
    ranking=dict(scores=scores),
    modular_utility=dict(scores=scores, kept=mask),
)

REFUSALS = dict(
    retain=(
        dict(scores=scores, protected=mask, keep=3, ratio=None, scope="head"),
        [
            Refusal("keep", None, ValueError, "exactly one"),
            Refusal("keep", 1, ValueError, "2 protected"),
            Refusal("keep", -1, ValueError, "[0, 4]"),
            Refusal("keep", 5, ValueError, "[0, 4]"),
            Refusal("keep", 2.0, TypeError, "integer"),
            Refusal("keep", torch.tensor([[2.0, 2.0]]), TypeError, "int64"),
            Refusal("keep", torch.tensor([2, 2]), ValueError, "shape"),
            Refusal("keep", torch.tensor([[2, 5]]), ValueError, "[0, 4]"),
            Refusal("keep", torch.tensor([[2, 1]]), ValueError, "2 protected"),
            Refusal("ratio", 0.5, ValueError, "exactly one"),
            Refusal("scope", ["head"], ValueError, "'head', 'layer', 'model'"),
        ],
    ),
)
