"""The mean of the rotary embedding over future positions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close
from spec_tests.scorers.mean_rotation import oracle
from spec_tests.strategies import grid

pytestmark = pytest.mark.spec("HubKV-ExpectedAttention")

turns = grid(2, high=32)
positions = st.integers(0, 40)


@given(turns, positions, st.integers(1, 8), grid(4, low=-16))
def test_it_is_the_mean_of_the_rotated_vectors(impl, frequencies, start, future, vector):
    mean = impl.mean_rotation(frequencies, start, future)
    angles, exact = frequencies.double().tolist(), vector.double().tolist()
    each = [oracle.rotated(exact, angles, p) for p in range(start, start + future)]
    expected = torch.tensor(each, dtype=torch.float64).mean(0)
    assert_close(mean.double() @ vector.double(), expected, torch.finfo(torch.float32).eps * 2**52)


@given(turns, st.lists(positions, min_size=1, max_size=3), st.integers(1, 8))
def test_every_row_starts_where_it_ends(impl, frequencies, starts, future):
    rows = impl.mean_rotation(frequencies, torch.tensor(starts), future)
    for row, start in zip(rows, starts, strict=True):
        assert_close(row, impl.mean_rotation(frequencies, start, future).double())


def test_by_default_the_next_512_positions_count(impl):
    frequencies = torch.tensor([2 * torch.pi / 512, 0.0], dtype=torch.float64)
    mean = impl.mean_rotation(frequencies, 7)
    assert_close(mean, torch.diag(torch.tensor([0.0, 1.0, 0.0, 1.0])).double(), 512.0)
