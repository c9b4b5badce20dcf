"""Hub detection and discounting in one pass: a program owns a block of tokens of one head."""

from struct import pack, unpack

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized import vector
from optimized._dispatch import gradient_fallback
from optimized.kernels._numerics import round_to_dtype, widened

BLOCK = 1024
RADII = 8
"""Above this radius the vectorised body, which doubles windows, takes fewer steps."""


@triton.jit
def rival(scores, protected, j, tokens, HAS_PROTECTED: tl.constexpr):
    """Return the scores at some positions of a row; minus infinity where none competes."""
    there = j.to(tl.uint32, bitcast=True) < tokens  # as unsigned, a negative index is large
    if HAS_PROTECTED:
        there &= tl.load(protected + j, mask=there, other=1) == 0
    return widened(tl.load(scores + j, mask=there, other=-float("inf")))


@triton.jit
def is_hub(mine, scores, protected, i, tokens, RADIUS: tl.constexpr, HAS_PROTECTED: tl.constexpr):
    """Whether positions `i` of a row hold the maximum of their window, given their scores."""
    hub = i >= 0
    for offset in tl.static_range(1, RADIUS + 1):
        # the lowest index wins a tie: strict on the left, not on the right
        hub &= mine > rival(scores, protected, i - offset, tokens, HAS_PROTECTED)
        hub &= mine >= rival(scores, protected, i + offset, tokens, HAS_PROTECTED)
    return hub


@triton.jit(do_not_specialize=["tokens", "gamma_bits"])
def smd_kernel(
    scores, protected, discounted, tokens, gamma_bits: "i64",
    RADIUS: tl.constexpr, HAS_PROTECTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one block of discounted scores.

    `gamma_bits` is a float64 as an integer: a float passed at run time arrives in float32, too
    coarse for float64 scores, and a constant of the kernel is compiled anew for every value.
    """
    blocks = tl.cdiv(tokens, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64) * tokens
    i = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    inside = i < tokens
    raw = tl.load(scores + head + i, mask=inside, other=0.0)
    mine = widened(raw)
    kept = is_hub(mine, scores + head, protected + head, i, tokens, RADIUS, HAS_PROTECTED)
    if HAS_PROTECTED:
        kept |= tl.load(protected + head + i, mask=inside, other=0) != 0
    gamma = gamma_bits.to(tl.int64).to(tl.float64, bitcast=True).to(mine.dtype)
    out = tl.where(kept, mine, mine * gamma)
    tl.store(discounted + head + i, round_to_dtype(out, raw.dtype), mask=inside)


@gradient_fallback(vector.smd)
def smd(scores: Tensor, radius: int, gamma: float, protected: Tensor | None) -> Tensor:
    if radius > RADII:
        return vector.smd(scores, radius, gamma, protected)
    scores = scores.contiguous()
    protected = None if protected is None else protected.contiguous()
    discounted = torch.empty_like(scores)
    if scores.numel():
        tokens = scores.shape[-1]
        grid = (scores.numel() // tokens * triton.cdiv(tokens, BLOCK),)
        smd_kernel[grid](
            scores, scores if protected is None else protected, discounted, tokens,
            unpack("<q", pack("<d", gamma))[0],
            RADIUS=radius, HAS_PROTECTED=protected is not None, BLOCK=BLOCK,
        )  # fmt: skip
    return discounted
