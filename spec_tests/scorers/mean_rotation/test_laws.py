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
    rotations = [oracle.rotated(exact, angles, p) for p in range(start, start + future)]
    expected = torch.tensor(rotations, dtype=torch.float64).mean(0)
    assert_close(mean.double() @ vector.double(), expected, torch.finfo(torch.float32).eps * 2**52)
