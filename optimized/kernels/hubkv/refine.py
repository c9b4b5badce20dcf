"""HubKV in three passes: moments of every block, weights of every head, refined scores.

The factor of a score depends on its head and on whether it is a hub, so each head has two factors.
"""

import math
from ctypes import c_float
from itertools import chain

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._numerics import is_row_broadcast, padded, round_to_dtype, widened
from optimized.kernels.hubkv.discount import RADII

BLOCK = 4096
EACH = 16  # scores of a thread
MOMENTS = 512  # blocks times heads whose moments a program merges at a time
SMALLEST = tl.constexpr(torch.finfo(torch.float32).tiny)


@triton.jit
def store_moments(
    scores, protected, here, left,
    HAS_PROTECTED: tl.constexpr, WHOLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the moments of a block with `left` scores; a WHOLE one has at least BLOCK."""
    i = tl.arange(0, BLOCK)
    inside = (i >= 0) if WHOLE else (i < left)
    score = widened(tl.load(scores + i, mask=inside, other=0.0))
    count = tl.minimum(left, BLOCK)
    if HAS_PROTECTED:
        aside = tl.load(protected + i, mask=inside, other=1)
        inside = aside == 0
        count = BLOCK - tl.sum(aside.to(tl.int32), 0)
    count = count.to(tl.float32)
    share = 1.0 / tl.maximum(count, 1.0)
    low = tl.min(tl.where(inside, score, float("inf")), 0)
    tl.store(here, count)
    tl.store(here + 1, tl.where(count > 0, low, 0.0))
    above = tl.where(inside, score - low, 0.0)
    rise = tl.sum(above, 0) * share
    tl.store(here + 2, rise)
    unit = tl.maximum(rise, SMALLEST)  # squares of small numbers underflow
    apart = tl.where(inside, above - rise, 0.0) * (1.0 / unit)
    tl.store(here + 3, tl.sqrt(tl.sum(apart * apart, 0) * share) * unit)


@triton.jit(do_not_specialize=["tokens", "row"])
def moments_kernel(
    scores, protected, moments, tokens, row, HAS_PROTECTED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Write the count, minimum, mean above the minimum, and deviation of a block's scores.

    Deviations are taken from the minimum, so that equal scores deviate by exactly 0.
    """
    blocks = tl.cdiv(tokens, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK
    here, left = moments + tl.program_id(0).to(tl.int64) * 4, tokens - start
    if (tokens % 16 == 0) & (left >= BLOCK):
        store_moments(
            scores + (head * padded(tokens) + start), protected + (head * padded(row) + start),
            here, left, HAS_PROTECTED, True, BLOCK,
        )  # fmt: skip
    else:
        store_moments(
            scores + (head * tokens + start), protected + (head * row + start),
            here, left, HAS_PROTECTED, False, BLOCK,
        )  # fmt: skip


@triton.jit
def number(x, rest):
    """Return a float64 from two float32 parts; arguments of a kernel arrive in float32."""
    return tl.zeros([1], tl.float64) + x + rest


@triton.jit(do_not_specialize=["blocks"])
def weights_kernel(
    moments, selectivity, weights, factors, heads, blocks,
    epsilon, epsilon_rest, tau, tau_rest, minimum, minimum_rest, maximum, maximum_rest,
    strength, strength_rest, gamma, gamma_rest,
    HEADS: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Write the selectivity, the weight and the two factors of each head of a layer."""
    layer = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, HEADS)
    row = layer * heads + h
    real = h < heads
    count = tl.zeros([HEADS], tl.float64)
    low, rise, spread = count, count, count
    for start in range(0, blocks, MOMENTS):
        block = start + tl.arange(0, MOMENTS)
        there = real[:, None] & (block < blocks)[None, :]
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
        within = tl.sum((spreads * spreads + apart * apart) * counts, 1)
        old = low - lowest + rise
        total = tl.maximum(count + new, 1.0)
        spread += within + (mean - old) * (mean - old) * count * new / total
        rise = tl.where(count > 0, old, 0.0) * count / total + mean * new / total
        low, count = lowest, count + new
    scale = low + rise + number(epsilon, epsilon_rest)
    found = tl.sqrt(spread / tl.maximum(count, 1.0)) / tl.where(scale > 0, scale, 1.0)
    found = tl.where((scale > 0) & real, found, 0.0)
    tl.store(selectivity + row, found.to(tl.float32), mask=real)
    mean = tl.sum(found, 0) / heads
    share = tl.where(mean > 0, found / tl.where(mean > 0, mean, 1.0), 1.0)
    exponent = number(tau, tau_rest)
    power = tl.exp2(exponent * tl.log2(tl.where(share > 0, share, 1.0)))
    power = tl.where((share > 0) | (exponent == 0), power, 0.0)
    weight = tl.minimum(
        tl.maximum(power, number(minimum, minimum_rest)), number(maximum, maximum_rest)
    )
    weight = weight.to(tl.float32)
    tl.store(weights + row, weight, mask=real)
    part = number(strength, strength_rest)
    hub = part * weight.to(tl.float64)
    other = hub * number(gamma, gamma_rest)
    tl.store(factors + row * 2, ((1.0 - part) + other).to(tl.float32), mask=real)
    tl.store(factors + row * 2 + 1, ((1.0 - part) + hub).to(tl.float32), mask=real)


@triton.jit
def split_columns(x, COUNT: tl.constexpr):
    """Return the columns of a matrix."""
    if COUNT == 1:
        return (tl.reshape(x, (x.shape[0],)),)
    else:
        even, odd = tl.split(tl.reshape(x, (x.shape[0], COUNT // 2, 2)))
        left, right = split_columns(even, COUNT // 2), split_columns(odd, COUNT // 2)
        found = ()
        for i in tl.static_range(COUNT // 2):
            found += (left[i], right[i])
        return found


@triton.jit
def join_columns(x, COUNT: tl.constexpr):
    """Return the matrix of some columns."""
    if COUNT == 1:
        return x[0][:, None]
    else:
        even, odd = (), ()
        for i in tl.static_range(COUNT // 2):
            even += (x[2 * i],)
            odd += (x[2 * i + 1],)
        both = tl.join(join_columns(even, COUNT // 2), join_columns(odd, COUNT // 2))
        return tl.reshape(both, (both.shape[0], COUNT))


@triton.jit
def competing(scores, protected, index, inside, SHIELDED: tl.constexpr, WHOLE: tl.constexpr):
    """Return scores of a row; minus infinity for protected or missing tokens."""
    if WHOLE:
        found = widened(tl.load(scores + index))
    else:
        found = widened(tl.load(scores + index, mask=inside, other=-float("inf")))
    if SHIELDED:
        aside = (
            tl.load(protected + index)
            if WHOLE
            else tl.load(protected + index, mask=inside, other=0)
        )
        # minus infinity loses to every score, and marks protected tokens
        found = tl.where(aside != 0, -float("inf"), found)
    return found


@triton.jit
def refine_block(
    scores, protected, factors, refined, start, left,
    RADIUS: tl.constexpr, SHIELDED: tl.constexpr, WHOLE: tl.constexpr, WIDTH: tl.constexpr,
    EACH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the refined scores of a block with `left` scores; a WHOLE one has at least BLOCK.

    A thread holds EACH consecutive scores as columns, loaded in vectors of WIDTH.
    """
    first = tl.arange(0, BLOCK // EACH) * EACH
    line = ()
    for back in tl.static_range(RADIUS):
        index = first - (RADIUS - back)
        there = (index >= -start) if WHOLE else (index >= -start) & (index < left)
        line += (competing(scores, protected, index, there, SHIELDED, False),)
    for part in tl.static_range(EACH // WIDTH):
        index = first[:, None] + (part * WIDTH + tl.arange(0, WIDTH))[None, :]
        line += split_columns(
            competing(scores, protected, index, index < left, SHIELDED, WHOLE), WIDTH
        )
    for ahead in tl.static_range(RADIUS):
        index = first + (EACH + ahead)
        line += (competing(scores, protected, index, index < left, SHIELDED, False),)
    # the maximum of RADIUS consecutive scores from each on
    largest = line
    for size in tl.static_range(1, RADIUS):
        wider = ()
        for j in tl.static_range(EACH + 2 * RADIUS - size):
            wider += (tl.maximum(largest[j], line[j + size]),)
        largest = wider
    low, high = tl.load(factors), tl.load(factors + 1)
    for part in tl.static_range(EACH // WIDTH):
        found = ()
        for j in tl.static_range(RADIUS + part * WIDTH, RADIUS + (part + 1) * WIDTH):
            mine = line[j]
            factor = tl.zeros_like(mine) + high
            if RADIUS:
                # the lowest index wins a tie: strict on the left, not on the right
                hub = (mine > largest[j - RADIUS]) & (mine >= largest[j + 1])
                factor = tl.where(hub, high, low)
            found += (tl.where(mine < 0, 1.0, mine * factor),)
        index = first[:, None] + (part * WIDTH + tl.arange(0, WIDTH))[None, :]
        out = round_to_dtype(join_columns(found, WIDTH), refined.dtype.element_ty)
        if WHOLE:
            tl.store(refined + index, out)
        else:
            tl.store(refined + index, out, mask=index < left)


@triton.jit(do_not_specialize=["tokens", "row"])
def refine_kernel(
    scores, protected, factors, refined, tokens, row,
    RADIUS: tl.constexpr, SHIELDED: tl.constexpr, WIDTH: tl.constexpr, EACH: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one block of refined scores, with 1 for protected tokens."""
    blocks = tl.cdiv(tokens, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    start = tl.program_id(0) % blocks * BLOCK
    left, factors = tokens - start, factors + head * 2
    if (tokens % 16 == 0) & (left >= BLOCK):
        here = head * padded(tokens) + start
        refine_block(
            scores + here, protected + (head * padded(row) + start), factors, refined + here,
            start, left, RADIUS, SHIELDED, True, WIDTH, EACH, BLOCK,
        )  # fmt: skip
    else:
        here = head * tokens + start
        refine_block(
            scores + here, protected + (head * row + start), factors, refined + here,
            start, left, RADIUS, SHIELDED, False, WIDTH, EACH, BLOCK,
        )  # fmt: skip


@gradient_fallback(vector.hubkv_refine)
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
    if scores.dtype not in (torch.bfloat16, torch.float16, torch.float32) or radius > RADII:
        # the kernels compute statistics of at most float32 scores
        knobs = (radius, gamma, tau, minimum, maximum, power, epsilon)
        return vector.hubkv_refine(scores, ratio, protected, *knobs)
    scores = scores.contiguous()
    refined = torch.empty_like(scores)
    if not scores.numel():
        return refined
    heads, tokens = scores.shape[-2:]
    rows, layers = scores.numel() // tokens, scores.shape[:-2].numel()
    blocks = triton.cdiv(tokens, BLOCK)
    mask, row = (scores, 0) if protected is None else shared(protected.view(torch.uint8))
    moments = scores.new_empty((rows, blocks, 4), dtype=torch.float32)
    moments_kernel[(rows * blocks,)](
        scores, mask, moments, tokens, row, HAS_PROTECTED=protected is not None, BLOCK=BLOCK,
    )  # fmt: skip
    selectivity, weights = scores.new_empty((2, rows), dtype=torch.float32)
    factors = scores.new_empty((layers, heads, 2), dtype=torch.float32)
    several = triton.next_power_of_2(heads)
    settings = (epsilon, tau, minimum, maximum, float(ratio) ** power, gamma)
    weights_kernel[(layers,)](
        moments, selectivity, weights, factors, heads, blocks, *chain(*map(split_float, settings)),
        HEADS=several, MOMENTS=max(1, MOMENTS // several),
    )  # fmt: skip
    refine_kernel[(rows * blocks,)](
        scores, mask, factors, refined, tokens, row, RADIUS=radius,
        SHIELDED=protected is not None, BLOCK=BLOCK,
        WIDTH=min(16 // scores.itemsize, BLOCK), EACH=min(EACH, BLOCK),
    )  # fmt: skip
    return refined


def split_float(x: float) -> tuple[float, float]:
    """Return a number rounded to float32 and the remainder; in float64 they add up to it."""
    first = c_float(x).value
    return first, x - first if math.isfinite(first) else 0.0


def shared(protected: Tensor) -> tuple[Tensor, int]:
    """Return a mask and the stride of its rows: 0, without a copy, if all rows share one."""
    if protected.numel() and is_row_broadcast(protected):
        return protected[(0,) * (protected.dim() - 1)], 0
    return protected.contiguous(), protected.shape[-1]
