"""What masking does to a matrix: beyond the paper, what its stability claim gestures at."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close
from spec_tests.draw import grid
from spec_tests.hex.statistics import spectral_scale
from spec_tests.inputs.expander import biregular, seeds


@st.composite
def masked_factors(draw, low, high, rank):
    """Sizes of a mask, a seed, and two factors of a matrix of that size."""
    x = draw(biregular())
    left = draw(grid(x["tokens"], rank, low=low, high=high, scale=1)).double()
    right = draw(grid(x["channels"], rank, low=low, high=high, scale=1)).double()
    return dict(**x, seed=draw(seeds)), left, right


def masked_error(mask, matrix):
    """The largest singular value of what rescaled masking changes."""
    density = mask.double().mean()
    return torch.linalg.matrix_norm(mask.double() * matrix / density - matrix, 2)


def ratio(impl, mask):
    """The second singular value over the first."""
    first = math.sqrt(int(mask[0].sum()) * int(mask[:, 0].sum()))
    return impl.second_singular_value(mask) / first


@pytest.mark.spec("HEX-Masking")
@given(masked_factors(0, 1, 1))
def test_a_matrix_of_signs_of_rank_one_changes_by_exactly_the_ratio(impl, x):
    sizes, left, right = x
    matrix = (2 * left - 1) @ (2 * right - 1).T
    mask = impl.random_expander(**sizes).mask
    expected = ratio(impl, mask) * math.sqrt(mask.numel())
    assert_close(masked_error(mask, matrix), expected, spectral_scale(mask) ** 2)


@pytest.mark.spec("HEX-Masking")
@given(masked_factors(-2, 3, 3))
def test_a_matrix_of_low_rank_changes_by_the_ratio_times_rank_and_coherence(impl, x):
    sizes, left, right = x
    matrix = left @ right.T
    mask = impl.random_expander(**sizes).mask
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    rank = int(torch.linalg.matrix_rank(matrix))
    # rank times coherence is the largest squared row norm of a factor, times its rows
    rows = mask.shape[0] * u[:, :rank].square().sum(1).max() if rank else u.new_zeros(())
    columns = mask.shape[1] * v[:rank].square().sum(0).max() if rank else u.new_zeros(())
    allowed = ratio(impl, mask) * (rows * columns).sqrt() * values.max()
    slack = spectral_scale(mask) ** 2
    assert_at_most(masked_error(mask, matrix) + slack, allowed + slack)
