"""KCVT quantisation without loops."""

import torch
from torch import Tensor

from reference.contract.enforce import any_true, may_branch_on_values
from reference.hex.kcvt import (
    Quantised,
    dequantise,
    group_values,
    scale_dtype,
    storable,
    transposed,
    ungroup_values,
)
from reference.precision import widen


def code(
    name: str, x: Tensor, bits: int, kept: Tensor | None, scales: torch.dtype | None
) -> Quantised:
    wide, stored, top = widen(x), scale_dtype(x.dtype, scales), 2**bits - 1
    if kept is not None and may_branch_on_values(kept) and not any_true(kept):
        kept = None
    if not x.shape[-1]:  # a group without members has minimum and step 0
        low = high = wide.new_zeros(x.shape[:-1])
    elif kept is None:
        low, high = wide.amin(-1), wide.amax(-1)
    else:
        empty = kept.all(-1)
        low = wide.masked_fill(kept, torch.inf).amin(-1).masked_fill(empty, 0)
        high = wide.masked_fill(kept, -torch.inf).amax(-1).masked_fill(empty, 0)
    step = (high - low) / top
    storable(name, torch.stack([low, step], -1), stored)
    minima, steps = low.to(stored), step.to(stored)
    low, step = minima.to(wide.dtype)[..., None], steps.to(wide.dtype)[..., None]
    # in place, since the span of a prompt is as large as its cache
    codes = (wide - low).div_(step.masked_fill(step == 0, torch.inf)).round_().clamp_(0, top)
    codes = codes if kept is None else codes.masked_fill_(kept, 0)
    return Quantised(codes.to(torch.uint8), steps, minima)


def kcvt(
    keys: Tensor,
    values: Tensor,
    bits: int,
    kept: Tensor | None,
    value_group: str,
    scales: torch.dtype | None,
) -> tuple[Tensor, Tensor]:
    columns = None if kept is None else transposed(kept)
    by_channel = dequantise(*code("keys", transposed(keys), bits, columns, scales))
    rows = None if kept is None else group_values(kept, value_group)
    by_token = dequantise(*code("values", group_values(values, value_group), bits, rows, scales))
    restored_keys = transposed(by_channel).to(keys.dtype)
    restored_values = ungroup_values(by_token, value_group, values.shape[-1]).to(values.dtype)
    if kept is None:
        return restored_keys, restored_values
    return torch.where(kept, keys, restored_keys), torch.where(kept, values, restored_values)


def quantise(x: Tensor, bits: int, kept: Tensor | None, scales: torch.dtype | None) -> Quantised:
    return code("x", x, bits, kept, scales)
