"""Other correct ways to quantise groups, and to restore them."""

# pyright: reportArgumentType=false

import numpy as np
import torch

import reference
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant

OWN = {torch.float16: torch.float16, torch.float64: torch.float64}
"""Scales of every other dtype are float32."""


@register_variant("quantise")
def at_once(x, bits, kept=None, scales=None):
    """Take minima and maxima of all groups at once, with infinity in place of kept entries."""
    kept = torch.zeros_like(x, dtype=torch.bool) if kept is None else kept
    wide, top = x.to(torch.promote_types(x.dtype, torch.float32)), 2**bits - 1
    if not x.shape[-1]:
        wide, kept = wide.new_zeros(*x.shape[:-1], 1), kept.new_ones(*x.shape[:-1], 1)
    low = wide.masked_fill(kept, torch.inf).amin(-1)
    high = wide.masked_fill(kept, -torch.inf).amax(-1)
    some = low <= high
    stored = scales or OWN.get(x.dtype, torch.float32)
    minima = torch.where(some, low, 0).to(stored)
    steps = torch.where(some, (high - low) / top, 0).to(stored)
    step, low = steps.to(wide.dtype)[..., None], minima.to(wide.dtype)[..., None]
    codes = ((wide - low) / step).round().clamp(0, top)
    codes = torch.where(kept | (step == 0), 0, codes).to(torch.uint8)
    return reference.Quantised(codes[..., : x.shape[-1]], steps, minima)


@register_variant("quantise", "values")
@among_tensors
def in_numpy(x, bits, kept=None, scales=None):
    """Quantise one group after another in NumPy, which also rounds half to even."""
    kept = np.zeros(x.shape, bool) if kept is None else kept
    stored = scales or (x.dtype if x.dtype in (np.float16, np.float64) else np.float32)
    codes = np.zeros(x.shape, np.uint8)
    steps, minima = np.zeros(x.shape[:-1], stored), np.zeros(x.shape[:-1], stored)
    wide = x if x.dtype == np.float64 else x.astype(np.float32)
    for group in np.ndindex(*x.shape[:-1]):
        rest = wide[group][~kept[group]]
        if rest.size:
            minima[group] = rest.min()
            steps[group] = (rest.max() - rest.min()) / wide.dtype.type(2**bits - 1)
            if steps[group] > 0:
                codes_of_rest = (rest - wide.dtype.type(minima[group])) / steps[group]
                codes[group][~kept[group]] = np.rint(codes_of_rest).clip(0, 2**bits - 1)
    return reference.Quantised(codes, steps, minima)


@register_variant("dequantise")
def by_fused_product(codes, steps, minima):
    """Multiply and add in one call."""
    exact = torch.promote_types(steps.dtype, torch.float32)
    steps, minima = steps.to(exact)[..., None], minima.to(exact)[..., None]
    return torch.addcmul(minima, codes.to(exact), steps)


@register_variant("dequantise", "values")
@among_tensors
def by_interpolation(codes, steps, minima):
    """Look up the codes in the grid of their group."""
    wide = np.promote_types(steps.dtype, np.float32)
    grid = np.arange(256, dtype=wide) * steps.astype(wide)[..., None]
    grid = grid + minima.astype(wide)[..., None]
    return np.take_along_axis(grid, codes.astype(np.int64), axis=-1)


@register_variant("kcvt")
def head_by_head(keys, values, bits=3, kept=None, value_group="token", scales=None):
    """Quantise each head's keys by channel, and its values or those of all heads together."""
    kept = torch.zeros_like(keys, dtype=torch.bool) if kept is None else kept
    keys_out, values_out = keys.clone(), values.clone()
    heads = range(keys.shape[-3])
    for head in heads:
        groups, mask = keys[..., head, :, :].mT, kept[..., head, :, :].mT
        restored = by_fused_product(*at_once(groups, bits, mask, scales))
        keys_out[..., head, :, :] = torch.where(mask, groups, restored.to(keys.dtype)).mT
    together = [[*heads]] if value_group == "token" else [[head] for head in heads]
    for some in together:
        groups = torch.cat([values[..., head, :, :] for head in some], -1)
        mask = torch.cat([kept[..., head, :, :] for head in some], -1)
        restored = by_fused_product(*at_once(groups, bits, mask, scales))
        whole = torch.where(mask, groups, restored.to(values.dtype))
        for head, part in zip(some, whole.chunk(len(some), -1), strict=True):
            values_out[..., head, :, :] = part
    return keys_out, values_out
