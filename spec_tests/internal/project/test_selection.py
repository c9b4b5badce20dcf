"""Selections of long rows: equal scores, both signs and every width of a key."""

import pytest
import torch

import optimized
from optimized.vector.retain import largest

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def mask_of(indices: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return the mask of these positions of each row."""
    return torch.zeros_like(like, dtype=torch.bool).scatter_(-1, indices, True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [96, 70_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_first_of_equal_scores_are_selected(dtype, tokens, sign):
    generator = torch.Generator().manual_seed(tokens)
    scores = sign * torch.randint(-2, 50, (3, tokens), generator=generator).to(dtype)
    scores[:, ::7], scores[:, 1::7], scores[1, ::3] = 0.0, -0.0, -torch.inf
    order = scores.argsort(dim=-1, descending=True, stable=True)
    assert torch.equal(optimized.ranking(scores), order)
    for count in (0, 1, tokens // 5, tokens - 1, tokens):
        best = mask_of(order[:, :count], scores)
        assert torch.equal(largest(scores, count), best)
        assert torch.equal(optimized.retain(scores, keep=count), best)
    budgets = torch.tensor([0, tokens // 3, tokens])
    kept = optimized.retain(scores, keep=budgets)
    for row, mask, best, count in zip(scores, kept, order, budgets.tolist(), strict=True):
        assert torch.equal(mask, mask_of(best[:count], row))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(700, 500), (2, 300_000)])
def test_both_ends_of_tied_rows_are_outliers(dtype, shape):
    x = torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    order = x.sort(dim=-1, descending=True, stable=True).indices
    count = shape[1] // 100
    ends = torch.cat([order[:, :count], order[:, -count:]], -1)
    assert torch.equal(optimized.outlier_mask(x, 0.02), mask_of(ends, x))
