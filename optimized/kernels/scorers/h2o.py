"""The attention mass of H2O, added to the mass that tokens have."""

import torch
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._attention_common import kernels_support
from optimized.kernels.hex.heavy_hitters import columns


@gradient_fallback(vector.h2o_mass)
def h2o_mass(
    queries: Tensor,
    keys: Tensor,
    mass: Tensor | None,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
) -> Tensor:
    if not kernels_support(queries, keys, log_sum_exp) or (
        mass is not None and mass.dtype == torch.float64
    ):
        return vector.h2o_mass(queries, keys, mass, valid, log_sum_exp)
    return columns(queries, keys, valid, mass, log_sum_exp)
