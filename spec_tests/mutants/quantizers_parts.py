"""Mutants of what GEAR is made of: outliers and the low-rank correction."""

import numpy as np
import torch

import reference
from reference import LowRank
from spec_tests.mutants.make import mutant

OUTLIERS = "quantizers/test_outliers.py::test_"
RANK = "quantizers/test_low_rank.py::test_"


@mutant(
    "outlier_mask",
    "outliers are the largest magnitudes",
    killer=OUTLIERS + "what_is_left_is_the_middle_of_the_order",
)
def by_magnitude(x, ratio=0.02):
    """Take both ends' share from the top of the magnitudes."""
    count = int(reference.outlier_mask(x, ratio).sum(-1).max()) if x.numel() else 0
    order = x.abs().sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, True)


@mutant(
    "outlier_mask",
    "each end is chosen on its own, so that equals overlap",
    killer=OUTLIERS + "no_member_is_both_where_all_are_equal",
)
def overlapping_ends(x, ratio=0.02):
    """Take the first of the largest, and the first of the smallest."""
    count = int(reference.outlier_mask(x, ratio).sum(-1).max()) // 2 if x.numel() else 0
    ends = [
        x.sort(dim=-1, descending=down, stable=True).indices[..., :count] for down in (True, False)
    ]
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, torch.cat(ends, -1), True)


@mutant(
    "outlier_mask",
    "the count of an end is rounded to the nearest",
    killer=OUTLIERS + "a_block_of_twenty_tokens_has_no_outlier_at_two_percent",
)
def nearest_count(x, ratio=0.02):
    """Round where the count is rounded down."""
    members = max(1, x.shape[-1])
    return reference.outlier_mask(x, min(1.0, (2 * round(ratio * members / 2) + 0.5) / members))


@mutant(
    "low_rank",
    "the last basis is not orthonormal",
    killer=RANK + "factors_are_a_basis_and_the_shadow_on_it",
)
def without_orthonormal_basis(x, rank, rounds=3, seed=0):
    """Leave out the last decomposition."""
    factors = reference.low_rank(x, rank, rounds, seed)
    wide = x.to(factors.left.dtype)
    left = wide @ factors.right
    return LowRank(left, wide.mT @ left)


@mutant(
    "low_rank",
    "the block passes through the matrix once",
    killer=RANK + "one_direction_of_any_matrix_is_that_of_its_powers",
)
def one_pass(x, rank, rounds=3, seed=0):
    """Forget the powers."""
    return reference.low_rank(x, rank, 1, seed)


@mutant(
    "low_rank",
    "blocks of different ranks have nothing in common",
    killer=RANK + "a_higher_rank_never_leaves_more",
)
def another_block_for_each_rank(x, rank, rounds=3, seed=0):
    """Let the rank into the seed."""
    return reference.low_rank(x, rank, 1, 1000 * rank + seed)


@mutant(
    "low_rank",
    "the block is drawn from the global generator",
    killer=RANK + "the_seed_alone_decides",
)
def unseeded(x, rank, rounds=3, seed=0):
    """Ask torch for a seed."""
    return reference.low_rank(x, rank, rounds, int(torch.randint(2**31, ())))


@mutant(
    "low_rank",
    "the seed is not used",
    killer=RANK + "another_seed_starts_elsewhere",
)
def one_seed_for_all(x, rank, rounds=3, seed=0):
    """Forget the seed."""
    return reference.low_rank(x, rank, rounds)


@mutant(
    "outlier_mask",
    "a share is the binary number next to it",
    killer=OUTLIERS + "a_share_is_the_decimal_number_it_is_written_as",
)
def binary_share_of_outliers(x, ratio=0.02):
    """Multiply in floating point, and round down."""
    members = max(1, x.shape[-1])
    count = int(ratio * members / 2)
    return reference.outlier_mask(x, min(1.0, (2 * count + 0.5) / members))


@mutant(
    "low_rank",
    "columns keep the sign that the decomposition gives them",
    killer=RANK + "a_direction_is_on_the_side_of_the_column_it_came_from",
)
def signs_of_the_decomposition(x, rank, rounds=3, seed=0):
    """Let the first entry of every column of the basis be negative."""
    factors = reference.low_rank(x, rank, rounds, seed)
    sign = 1 - 2 * (factors.left[..., :1, :] > 0).to(factors.left.dtype)
    return LowRank(factors.left * sign, factors.right * sign)


@mutant(
    "low_rank",
    "the block is drawn row by row",
    killer="test_vectors.py::test_vector[quantizers-low-rank-two-columns-one-after-the-other]",
)
def block_row_by_row(x, rank, rounds=3, seed=0):
    """Draw the numbers of all columns in turn."""
    rank = min(rank, *x.shape[-2:])
    if rank < 2 or not x.any():
        return reference.low_rank(x, rank, rounds, seed)
    wide = x.double()
    block = np.random.RandomState([seed, 4]).random_sample((x.shape[-1], rank))
    right = torch.from_numpy(2 * block - 1)
    for _ in range(rounds - 1):
        right = wide.mT @ (wide @ right)
    left = turned(wide @ turned(right))
    return LowRank(left, wide.mT @ left)


def turned(columns):
    """Return an orthonormal basis, each column on the side of its own."""
    basis, triangle = torch.linalg.qr(columns)
    return basis * triangle.diagonal(dim1=-2, dim2=-1).sign()[..., None, :]
