"""KCVT quantisation without loops."""

import torch
import torch.nn.functional as F
from torch import Tensor

import reference
from optimized._composed import composed
from reference.hex.kcvt import Quantised, dequantise, scale_dtype, storable
from reference.precision import widen

__all__ = ["dequantise", "kcvt", "quantise"]


def code(name: str, x: Tensor, bits: int, kept: Tensor, scales: torch.dtype | None) -> Quantised:
    wide, stored, top = widen(x), scale_dtype(x.dtype, scales), 2**bits - 1
    # a group without members has minimum and step 0
    empty = kept.all(-1)
    low = F.pad(wide.masked_fill(kept, torch.inf), (0, 1), value=torch.inf).amin(-1)
    high = F.pad(wide.masked_fill(kept, -torch.inf), (0, 1), value=-torch.inf).amax(-1)
    low, high = low.masked_fill(empty, 0), high.masked_fill(empty, 0)
    step = (high - low) / top
    storable(name, torch.stack([low, step], -1), stored)
    minima, steps = low.to(stored), step.to(stored)
    low, step = minima.to(wide.dtype)[..., None], steps.to(wide.dtype)[..., None]
    codes = ((wide - low) / step).round().clamp(0, top)
    return Quantised(codes.masked_fill(kept | (step == 0), 0).to(torch.uint8), steps, minima)


quantise = composed(reference.quantise)
kcvt = composed(reference.kcvt)
