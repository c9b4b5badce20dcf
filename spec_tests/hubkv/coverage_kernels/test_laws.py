"""The kernels of the coverage objective: HubKV §3.2."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close

pytestmark = pytest.mark.spec("HubKV-5")


@given(st.integers(1, 12), st.integers(0, 6))
def test_a_window_at_the_end_spreads_over_fewer_places(impl, tokens, radius):
    shape = impl.window_kernel(tokens, radius, torch.float64)
    weights = impl.coverage_weights(torch.ones(tokens, dtype=torch.float64), shape)
    for j in range(tokens):
        places = min(j, radius) + 1 + min(tokens - 1 - j, radius)
        assert int((weights[:, j] > 0).sum()) == places
        assert_close(weights[j, j], 1 / places)


@given(st.integers(2, 20), st.sampled_from([0.5, 1.0, 4.0]))
def test_a_gaussian_starts_at_one_and_falls(impl, tokens, deviation):
    shape = impl.gaussian_kernel(tokens, deviation, torch.float64)
    assert shape[0] == 1
    assert (shape.diff() < 0).all()
    # K(d)⁴ = K(2d) at every d holds for a Gaussian only
    assert_close(shape[: (tokens + 1) // 2] ** 4, shape[::2])
