"""The precision of statistics and sums."""

import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Return `x` in float32, or unchanged if it is float64.

    Sums, quotients and mixtures of half-precision numbers run in float32 and are rounded once, at
    the end.
    """
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def widest(*tensors: Tensor | None) -> torch.dtype:
    """Return float64 if one of the tensors is float64, else float32."""
    wide = any(x is not None and x.dtype == torch.float64 for x in tensors)
    return torch.float64 if wide else torch.float32
