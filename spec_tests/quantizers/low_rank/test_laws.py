"""The low-rank correction: GEAR's power iteration."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_equal
from spec_tests.inputs import INPUTS
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("HEX-GEAR")

MATRICES = st.tuples(st.integers(1, 9), st.integers(1, 5)).flatmap(lambda s: gaussian_tensor(2, *s))
SEEDS = st.integers(0, 100)


def left_over(impl, x, rank, seed=0, rounds=3):
    """Return the norm of the matrix minus its correction."""
    factors = impl.low_rank(x, rank, rounds, seed)
    return torch.linalg.matrix_norm(x - factors.left @ factors.right.mT)


@given(MATRICES | gaussian_tensor(2, 9, 5), SEEDS, st.integers(1, 3))
def test_a_higher_rank_never_leaves_more(impl, x, seed, rounds):
    x = x.double()
    norms = [left_over(impl, x, rank, seed, rounds) for rank in range(min(x.shape[-2:]) + 1)]
    scale = norms[0].max()
    assert_close(norms[0], torch.linalg.matrix_norm(x))
    for more, fewer in zip(norms[1:], norms, strict=False):
        assert_at_most(more + scale, fewer + scale)


@given(INPUTS["low_rank"])
def test_factors_are_a_basis_and_the_shadow_on_it(impl, x):
    matrix = x["x"].double()
    factors = impl.low_rank(matrix, x["rank"], x["rounds"], x["seed"])
    assert factors.left.shape[-1] == min(x["rank"], *matrix.shape[-2:])
    nonzero = matrix.abs().flatten(-2).sum(-1) > 0
    gram = factors.left.mT @ factors.left
    assert_close(gram, torch.eye(gram.shape[-1]).double() * nonzero[..., None, None])
    assert_close(factors.right, matrix.mT @ factors.left, matrix.abs().sum())


@given(gaussian_tensor(9, 4), st.integers(1, 3), SEEDS)
def test_directions_much_stronger_than_the_rest_are_found(impl, x, rank, seed):
    """Each pass divides the weaker directions by sixteen, from any start."""
    left, _, right = torch.linalg.svd(x.double(), full_matrices=False)
    strengths = torch.where(torch.arange(4) < rank, 16.0, 1.0).double()
    x = left * strengths @ right
    assert left_over(impl, x, rank, seed) ** 2 <= (4 - rank) * (1 + 2.0**-6)


@given(gaussian_tensor(6, 4), SEEDS)
def test_the_seed_alone_decides(impl, x, seed):
    torch.manual_seed(0)
    first = impl.low_rank(x.double(), 1, 1, seed)
    torch.manual_seed(1)
    assert_equal(impl.low_rank(x.double(), 1, 1, seed), first)
    assert not torch.equal(impl.low_rank(x.double(), 1, 1, seed + 1).left, first.left)


@pytest.mark.ours_only
@given(gaussian_tensor(6, 4), SEEDS)
def test_a_direction_is_on_the_side_of_the_column_it_came_from(impl, x, seed):
    start = 2 * np.random.RandomState([seed, 4]).random_sample(4) - 1
    reached = x.double() @ torch.from_numpy(start)
    left, right = impl.low_rank(x.double(), 1, 1, seed)
    assert left[:, 0] @ reached > 0
    assert right[:, 0] @ torch.from_numpy(start) > 0
