"""Strategies for kernels."""

import torch
from hypothesis import strategies as st

few = st.integers(0, 9)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16])


@st.composite
def window_kernel(draw):
    """Inputs whose window may be wider than the context."""
    return dict(
        tokens=draw(few), radius=draw(st.integers(0, 12) | st.just(1000)), dtype=draw(dtypes)
    )


@st.composite
def gaussian_kernel(draw):
    """Inputs from a narrow kernel to a flat one."""
    deviation = draw(st.sampled_from([0.25, 0.5, 1.0, 2.5, 1e6]))
    return dict(tokens=draw(few), deviation=deviation, dtype=draw(dtypes))


GOOD = dict(
    window_kernel=dict(tokens=3, radius=1, dtype=torch.float32),
    gaussian_kernel=dict(tokens=3, deviation=1.0, dtype=torch.float32),
)
