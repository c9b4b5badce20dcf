"""KCVT quantisation without loops."""

import torch
from torch import Tensor

import reference
from optimized._rebind import rebind
from reference.hex.kcvt import Quantised, scale_dtype, storable
from reference.precision import widen


def code(name: str, x: Tensor, bits: int, kept: Tensor, scales: torch.dtype | None) -> Quantised:
    wide, stored, top = widen(x), scale_dtype(x.dtype, scales), 2**bits - 1
    # a group without members has minimum and step 0
    low = high = wide.new_zeros(x.shape[:-1])
    if x.shape[-1]:
        empty = kept.all(-1)
        low = wide.masked_fill(kept, torch.inf).amin(-1).masked_fill(empty, 0)
        high = wide.masked_fill(kept, -torch.inf).amax(-1).masked_fill(empty, 0)
    step = (high - low) / top
    storable(name, torch.stack([low, step], -1), stored)
    minima, steps = low.to(stored), step.to(stored)
    low, step = minima.to(wide.dtype)[..., None], steps.to(wide.dtype)[..., None]
    # in place, since the span of a prompt is as large as its cache
    codes = (wide - low).div_(step).round_().clamp_(0, top)
    return Quantised(codes.masked_fill_(kept | (step == 0), 0).to(torch.uint8), steps, minima)


quantise = rebind(reference.quantise, code=code)
kcvt = rebind(reference.kcvt, code=code)
