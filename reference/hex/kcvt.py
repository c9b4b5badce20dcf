"""KCVT: coarse asymmetric quantisation, keys by channel and values by token."""

from math import inf
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from reference.contract.enforce import ends, may_read_values, requires
from reference.contract.preconditions import keys_have_heads_and_channels, same_dtype
from reference.contract.types import Bits, BothBits, Finite, Scales, ValueGroup
from reference.precision import widen


class Quantised(NamedTuple):
    """Codes of each member, and the step and minimum of each group as they are stored.

    Source:
        HEX-3.4a.
    """

    codes: UInt8[Tensor, "*groups members"]
    steps: Float[Tensor, "*groups"]
    minima: Float[Tensor, "*groups"]


def quantise(
    x: Finite[Tensor, "*groups members"],
    bits: Bits,
    kept: Bool[Tensor, "*groups members"] | None = None,
    scales: Scales = None,
) -> Quantised:
    r"""Code the members of each group, along the last axis, on a grid from minimum to maximum.

    $$c_j = \mathrm{round}\Bigl(\frac{X_j - \min_g X}{\Delta_g}\Bigr), \qquad
      \Delta_g = \frac{\max_g X - \min_g X}{2^b - 1}$$

    Args:
        x: values $X$.
        bits: code width $b$.
        kept: true at entries stored in full precision: they enter neither minimum nor maximum,
            and their code is 0.
        scales: precision of the stored steps and minima, `torch.float16` or `torch.float32`. By
            default float16 for float16, float64 for float64, otherwise float32.

    Returns:
        Codes of at most $2^b - 1$, computed from the steps and minima as stored. A group without
        members, or of equal ones, has step 0 and codes 0; an empty one has minimum 0.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-3.4a. Corrected (E-H1, E-H15): printed "where $\Delta_g$ is the dynamic range of group
        $g$" (§3.4), and no rule for a group of equal members.

    Reading:
        E-H1, E-H13, E-H15: the step is the range over $2^b - 1$, since the range itself would
        leave two levels; kept entries have no part in it; rounding is half to even, then clamped.
    """
    if kept is None:
        kept = torch.zeros_like(x, dtype=torch.bool)
    return code("x", x, bits, kept, scales)


def dequantise(
    codes: UInt8[Tensor, "*groups members"],
    steps: Float[Tensor, "*groups"],
    minima: Float[Tensor, "*groups"],
) -> Float[Tensor, "*groups members"]:
    r"""Return the value each code stands for.

    $$\tilde X_j = c_j\, \Delta_g + \min_g X$$

    Args:
        codes: codes $c$ of `quantise`.
        steps: steps $\Delta$, one a group.
        minima: minima, one a group.

    Returns:
        The values $\tilde X$ in float32, or float64 for float64 steps. Code 0 is the minimum
        exactly.

    Source:
        HEX-3.4a. As printed (§3.4); the step is that of `quantise` (E-H1).
    """
    steps, minima = widen(steps), widen(minima)
    return codes.to(steps.dtype) * steps[..., None] + minima[..., None]


@requires(keys_have_heads_and_channels, same_dtype)
def kcvt(
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    bits: Bits = 3,
    kept: Bool[Tensor, "*batch kv_heads tokens width"] | None = None,
    value_group: ValueGroup = "token",
    scales: Scales = None,
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    r"""Quantise and restore a cache: a group is a channel of the keys, a token of the values.

    $$\tilde K_{t,c} = \mathrm{round}\Bigl(\frac{K_{t,c} - \min_t K_{t,c}}{\Delta_c}\Bigr)
      \Delta_c + \min_t K_{t,c}, \qquad
      \Delta_c = \frac{\max_t K_{t,c} - \min_t K_{t,c}}{2^b - 1}$$

    $$\tilde V_{t,c} = \mathrm{round}\Bigl(\frac{V_{t,c} - \min_c V_{t,c}}{\Delta_t}\Bigr)
      \Delta_t + \min_c V_{t,c}, \qquad
      \Delta_t = \frac{\max_c V_{t,c} - \min_c V_{t,c}}{2^b - 1}$$

    Args:
        keys: keys $K$.
        values: values $V$.
        bits: code width $b$.
        kept: true at entries that stay as they are, outside the statistics.
        value_group: `"token"`, one group over all heads, or `"head"`, one group a token and head.
        scales: precision of the stored steps and minima, as in `quantise`.

    Returns:
        The restored keys and values in the type of the input, kept entries bit for bit. With one
        token every key is its own group, and comes back exactly.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-3.4b. Corrected (E-H1, E-H15): printed "where $\Delta_g$ is the dynamic range of group
        $g$" (§3.4). The groups are there in words: "keys are quantized along the channel dimension
        and values along the token dimension". How far they reach is ours (E-H14).

    Reading:
        E-H14: a channel's group runs over all tokens compressed together; whether a token's
        group spans the heads is not said.
    """
    if kept is None:
        kept = torch.zeros_like(keys, dtype=torch.bool)
    by_channel = dequantise(*code("keys", transposed(keys), bits, transposed(kept), scales))
    restored_keys = transposed(by_channel).to(keys.dtype)
    rows, kept_rows = group_values(values, value_group), group_values(kept, value_group)
    by_token = dequantise(*code("values", rows, bits, kept_rows, scales))
    restored_values = ungroup_values(by_token, value_group, values.shape[-1]).to(values.dtype)
    return torch.where(kept, keys, restored_keys), torch.where(kept, values, restored_values)


def code(name: str, x: Tensor, bits: int, kept: Tensor, scales: torch.dtype | None) -> Quantised:
    """Quantise what the argument `name` brought."""
    wide, stored, top = widen(x), scale_dtype(x.dtype, scales), 2**bits - 1
    low, high = wide.new_zeros(x.shape[:-1]), wide.new_zeros(x.shape[:-1])
    for group in np.ndindex(*x.shape[:-1]):
        rest = wide[group][~kept[group]]
        if rest.numel():
            low[group], high[group] = rest.min(), rest.max()
    step = (high - low) / top
    storable(name, torch.stack([low, step], -1), stored)
    minima, steps = low.to(stored), step.to(stored)
    low, step = minima[..., None].to(wide.dtype), steps[..., None].to(wide.dtype)
    codes = ((wide - low) / step).round().clamp(0, top)
    codes = codes.masked_fill(kept | (step == 0), 0).to(torch.uint8)
    return Quantised(codes, steps, minima)


def storable(name: str, scales: Tensor, dtype: torch.dtype) -> None:
    """Refuse minima and steps that overflow the precision they are stored in."""
    if not may_read_values(scales):
        return
    low, high = ends(stored := scales.to(dtype))
    if not -inf < low <= high < inf:
        raise ValueError(
            f"{name} must have minima and steps within {torch.finfo(dtype).max} to be stored as "
            f"{dtype}, got {scales[~stored.isfinite()][0].item()}"
        )


def joint_bits(bits: int, value_bits: int | None) -> BothBits:
    """Return the code width of keys and values; both where they differ."""
    return bits if value_bits in (None, bits) else (bits, value_bits)


def bits_of_both(bits: BothBits) -> tuple[int, int]:
    """Return the code widths of keys and of values."""
    return bits if isinstance(bits, tuple) else (bits, bits)


def scale_dtype(dtype: torch.dtype, scales: torch.dtype | None) -> torch.dtype:
    """Return the precision scales are stored in."""
    wide = (torch.float16, torch.float64)
    return scales or (dtype if dtype in wide else torch.float32)


def transposed(x: Tensor) -> Tensor:
    """Exchange tokens and channels."""
    return x.transpose(-1, -2)


def group_values(x: Tensor, value_group: str) -> Tensor:
    """Return tokens as groups, over all heads or one by one."""
    return x.transpose(-3, -2).flatten(-2) if value_group == "token" else x


def ungroup_values(x: Tensor, value_group: str, width: int) -> Tensor:
    """Undo `group_values`."""
    if value_group == "head":
        return x
    return x.unflatten(-1, (x.shape[-1] // width, width)).transpose(-3, -2)
