"""In which precision statistics and mixing run."""

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Return `x` in float32, or as it is where it already is float64.

    Sums, quotients and mixtures of half-precision numbers run in float32 and are rounded once, at
    the end.
    """
    return x if x.dtype == torch.float64 else x.to(torch.float32)
