"""Strategies for kernels."""

import torch
from hypothesis import strategies as st

few = st.integers(0, 9)
dtypes = st.sampled_from([torch.float64, torch.float32, torch.bfloat16])


# a window may be wider than the context; a deviation is from narrow to flat
INPUTS = dict(
    window_kernel=dict(tokens=few, radius=st.integers(0, 12) | st.just(1000), dtype=dtypes),
    gaussian_kernel=dict(
        tokens=few, deviation=st.sampled_from([0.25, 0.5, 1.0, 2.5, 1e6]), dtype=dtypes
    ),
)

GOOD = dict(
    window_kernel=dict(tokens=3, radius=1, dtype=torch.float32),
    gaussian_kernel=dict(tokens=3, deviation=1.0, dtype=torch.float32),
)
