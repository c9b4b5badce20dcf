"""Selections of long rows: equal scores, both signs and every width of a key."""

import pytest
import torch

import optimized
from optimized.vector.retain import largest

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)


def rows(tokens: int, dtype: torch.dtype, sign: float) -> torch.Tensor:
    """Return scores of few distinct values, with zeros of both signs and evicted tokens."""
    generator = torch.Generator().manual_seed(tokens)
    scores = sign * torch.randint(-2, 50, (3, tokens), generator=generator).to(dtype)
    scores[:, ::7] = 0.0
    scores[:, 1::7] = -0.0
    scores[1, ::3] = -torch.inf
    return scores


def first_of_order(scores: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mask of the best `count` of each row by a stable sort."""
    best = scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter_(-1, best, True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [96, 70_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_first_of_equal_scores_are_selected(dtype, tokens, sign):
    scores = rows(tokens, dtype, sign)
    order = scores.argsort(dim=-1, descending=True, stable=True)
    assert torch.equal(optimized.ranking(scores), order)
    for count in (0, 1, tokens // 5, tokens // 2, tokens - 1, tokens):
        assert torch.equal(largest(scores, count), first_of_order(scores, count))
        assert torch.equal(optimized.retain(scores, keep=count), first_of_order(scores, count))
    budgets = torch.tensor([0, tokens // 3, tokens])
    kept = optimized.retain(scores, keep=budgets)
    for row, mask, count in zip(scores, kept, budgets.tolist(), strict=True):
        assert torch.equal(mask, first_of_order(row, count))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(700, 500), (2, 300_000)])
def test_both_ends_of_tied_rows_are_outliers(dtype, shape):
    x = torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    order = x.sort(dim=-1, descending=True, stable=True).indices
    count = shape[1] // 100
    ends = torch.cat([order[:, :count], order[:, -count:]], -1)
    wanted = torch.zeros_like(x, dtype=torch.bool).scatter_(-1, ends, True)
    assert torch.equal(optimized.outlier_mask(x, 0.02), wanted)


def test_the_best_gain_is_found_among_sums_that_round_apart():
    generator = torch.Generator().manual_seed(0)
    terms = torch.rand(512, generator=generator)
    orders = torch.rand(16, 512, 16, generator=generator).argsort(-2)
    weights = torch.zeros(16, 512, 512)
    weights[..., :16] = terms[orders] * (1 + 1e-6 * torch.rand(16, 1, 16, generator=generator))
    assert optimized.greedy(weights, 1).tolist() == optimized.greedy(weights.double(), 1).tolist()
