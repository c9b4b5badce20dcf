"""HubKV in three passes: moments of every block, weights of every head, refined scores.

What a score is multiplied by depends on its head, and on whether it is a hub: two factors a head.
"""

import math
from itertools import chain
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized.kernels._device import is_one_row, rounded, widened
from optimized.kernels.hubkv.discount import RADII, is_hub
from reference import errors

BLOCK = 4096
MOMENTS = 2048  # of so many blocks at a time a program adds up the moments


@triton.jit
def moments_kernel(
    scores, protected, content, moments, tokens, row,
    HAS_PROTECTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write how many scores a block has, the lowest, the mean above it, and its part of the spread.

    Measured from the lowest score, so that equal scores deviate by exactly 0; divided before they
    are added up, so that no sum overflows.
    """
    blocks = tl.cdiv(tokens, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = i < tokens
    raw = tl.load(scores + head * tokens + i, mask=inside, other=0.0)
    score = widened(raw)
    if HAS_PROTECTED:
        there, aside = inside, tl.load(protected + head * row + i, mask=inside, other=1) != 0
        # minus infinity loses to every score, and marks what is set aside
        lost = rounded(tl.where(aside, -float("inf"), score), raw.dtype)
        tl.store(content + head * tokens + i, lost, mask=there)
        inside &= ~aside
    count = tl.sum(inside.to(tl.int32), 0).to(tl.float32)
    share = 1.0 / tl.maximum(count, 1.0)
    low = tl.min(tl.where(inside, score, float("inf")), 0)
    above = tl.where(inside, score - low, 0.0)
    rise = tl.sum(above * share, 0)
    apart = tl.where(inside, above - rise, 0.0)
    here = moments + tl.program_id(0).to(tl.int64) * 4
    tl.store(here, count)
    tl.store(here + 1, tl.where(count > 0, low, 0.0))
    tl.store(here + 2, rise)
    tl.store(here + 3, tl.sum(apart * apart * share, 0))


@triton.jit
def number(x, rest):
    """Return a number that came in two parts, since one part arrives in float32."""
    return tl.zeros([1], tl.float64) + x + rest


@triton.jit
def weights_kernel(
    moments, selectivity, weights, factors, heads, blocks,
    epsilon, epsilon_rest, tau, tau_rest, minimum, minimum_rest, maximum, maximum_rest,
    strength, strength_rest, gamma, gamma_rest,
    HEADS: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Write the selectivity of each head of a layer, its weight, and its two factors."""
    layer = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HEADS)
    row = layer * heads + h
    known = h < heads
    count = tl.zeros([HEADS], tl.float64)
    low, rise, spread = count, count, count
    for start in range(0, blocks, MOMENTS):
        block = start + tl.arange(0, MOMENTS)
        there = known[:, None] & (block < blocks)[None, :]
        here = moments + (row[:, None] * blocks + block[None, :]) * 4
        counts = tl.load(here, mask=there, other=0.0).to(tl.float64)
        there &= counts > 0
        lows = tl.load(here + 1, mask=there, other=float("inf")).to(tl.float64)
        rises = tl.load(here + 2, mask=there, other=0.0).to(tl.float64)
        spreads = tl.load(here + 3, mask=there, other=0.0).to(tl.float64)
        new = tl.sum(counts, 1)
        lowest = tl.min(lows, 1)
        lowest = tl.where(new > 0, lowest, low)
        lowest = tl.where(count > 0, tl.minimum(low, lowest), lowest)
        means = tl.where(there, lows - lowest[:, None] + rises, 0.0)
        mean = tl.sum(means * counts, 1) / tl.maximum(new, 1.0)
        apart = tl.where(there, means - mean[:, None], 0.0)
        within = tl.sum((spreads + apart * apart) * counts, 1)
        old = low - lowest + rise
        total = tl.maximum(count + new, 1.0)
        spread += within + (mean - old) * (mean - old) * count * new / total
        rise = tl.where(count > 0, old, 0.0) * count / total + mean * new / total
        low, count = lowest, count + new
    scale = low + rise + number(epsilon, epsilon_rest)
    found = tl.sqrt(spread / tl.maximum(count, 1.0)) / tl.where(scale > 0, scale, 1.0)
    found = tl.where((scale > 0) & known, found, 0.0)
    tl.store(selectivity + row, found.to(tl.float32), mask=known)
    least = tl.min(tl.where(known, found, float("inf")), 0)
    mean = least + tl.sum(tl.where(known, (found - least) / heads, 0.0), 0)
    share = tl.where(mean > 0, found / tl.where(mean > 0, mean, 1.0), 1.0)
    exponent = number(tau, tau_rest)
    power = tl.exp2(exponent * tl.log2(tl.where(share > 0, share, 1.0)))
    power = tl.where((share > 0) | (exponent == 0), power, 0.0)
    weight = tl.minimum(
        tl.maximum(power, number(minimum, minimum_rest)), number(maximum, maximum_rest)
    )
    weight = weight.to(tl.float32)
    tl.store(weights + row, weight, mask=known)
    part = number(strength, strength_rest)
    hub = part * weight.to(tl.float64)
    other = hub * number(gamma, gamma_rest)
    tl.store(factors + row * 2, ((1.0 - part) + other).to(tl.float32), mask=known)
    tl.store(factors + row * 2 + 1, ((1.0 - part) + hub).to(tl.float32), mask=known)


@triton.jit
def refine_kernel(content, factors, refined, tokens, RADIUS: tl.constexpr, BLOCK: tl.constexpr):
    """Write one block of refined scores; 1 where minus infinity stands for them."""
    blocks = tl.cdiv(tokens, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    i = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    row, inside = content + head * tokens, i < tokens
    raw = tl.load(row + i, mask=inside, other=0.0)
    mine = widened(raw)
    hub = is_hub(mine, row, row, i, tokens, RADIUS, False)
    factor = tl.where(hub, tl.load(factors + head * 2 + 1), tl.load(factors + head * 2))
    out = tl.where(mine < 0, 1.0, mine * factor)
    tl.store(refined + head * tokens + i, rounded(out, raw.dtype), mask=inside)


def hubkv_refine(
    scores: Tensor,
    ratio: float,
    protected: Tensor | None,
    radius: int,
    gamma: float,
    tau: float,
    minimum: float,
    maximum: float,
    power: float,
    epsilon: float,
) -> Tensor:
    knobs = (radius, gamma, tau, minimum, maximum, power, epsilon)
    if not fits(scores, radius):
        return vector.hubkv_refine(scores, ratio, protected, *knobs)
    return refine_among(scores, ratio, protected, *knobs)


def fits(scores: Tensor, radius: int) -> bool:
    """Whether the kernels are made for a call: statistics are of float32."""
    return scores.dtype in (torch.bfloat16, torch.float16, torch.float32) and radius <= RADII


def refine_among(
    scores: Tensor,
    ratio: float,
    protected: Tensor | None,
    radius: int,
    gamma: float,
    tau: float,
    minimum: float,
    maximum: float,
    power: float,
    epsilon: float,
    ranks: Any = None,
) -> Tensor:
    """Launch the kernels over these heads, which stand among those of `ranks` if there are some.

    A head's moments are the same whichever heads stand beside it; its weight is computed on every
    rank from those of all heads.
    """
    scores = scores.contiguous()
    refined = torch.empty_like(scores)
    if not (scores.numel() if ranks is None else scores.shape[:-2].numel() * scores.shape[-1]):
        return refined
    here, tokens = scores.shape[-2:]
    rows = scores.numel() // tokens
    blocks = triton.cdiv(tokens, BLOCK)
    content, mask, row = scores, scores, 0
    if protected is not None:
        content = torch.empty_like(scores)
        mask, row = shared(protected)
    moments = scores.new_empty((rows, blocks, 4), dtype=torch.float32)
    if rows:
        moments_kernel[(rows * blocks,)](
            scores, mask, content, moments, tokens, row,
            HAS_PROTECTED=protected is not None, BLOCK=BLOCK,
        )  # fmt: skip
    heads, mine = here, slice(None)
    if ranks is not None:
        heads, mine = sum(ranks.heads), ranks.mine
        moments = ranks.gather(moments.view(scores.shape[:-2].numel(), here, blocks, 4), 1)
        if not heads:
            return refined
    layers = scores.shape[:-2].numel()
    selectivity, weights = scores.new_empty((2, layers * heads), dtype=torch.float32)
    factors = scores.new_empty((layers, heads, 2), dtype=torch.float32)
    several = triton.next_power_of_2(heads)
    settings = (epsilon, tau, minimum, maximum, ratio**power, gamma)
    weights_kernel[(layers,)](
        moments, selectivity, weights, factors, heads, blocks, *chain(*map(halved, settings)),
        HEADS=several,
        MOMENTS=min(triton.next_power_of_2(blocks), max(1, MOMENTS // several)),
    )  # fmt: skip
    errors.in_range("scores", selectivity)
    errors.in_range("scores", weights)
    if rows:
        factors = factors[:, mine].contiguous()
        refine_kernel[(rows * blocks,)](
            content, factors, refined, tokens, RADIUS=radius, BLOCK=BLOCK
        )
    errors.in_range("scores", refined)
    return refined


def halved(x: float) -> tuple[float, float]:
    """Return a number as float32 and what that leaves over: in float64 they add up to it."""
    first = torch.tensor(x, dtype=torch.float64).float().item()
    return first, x - first if math.isfinite(first) else 0.0


def shared(protected: Tensor) -> tuple[Tensor, int]:
    """Return a mask and how far its rows are apart: one that all share is not copied."""
    if is_one_row(protected):
        return protected, 0
    return protected.contiguous(), protected.shape[-1]
