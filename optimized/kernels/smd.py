"""Hub detection and discounting in one pass: a program owns a block of tokens of one head."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def smd_kernel(
    scores, protected, discounted, tokens, radius,
    GAMMA: tl.constexpr, HAS_PROTECTED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write one block of discounted scores.

    GAMMA is a constant of the kernel because a number passed at run time arrives in float32, too
    coarse for float64 scores.
    """
    head = tl.program_id(0).to(tl.int64) * tokens
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < tokens
    raw = tl.load(scores + head + i, mask=inside, other=0.0)
    mine = raw.to(tl.float32) if raw.dtype != tl.float64 else raw
    kept = inside
    aside = i < 0
    if HAS_PROTECTED:
        aside = tl.load(protected + head + i, mask=inside, other=0) != 0
    for offset in range(1, radius + 1):
        left, right = i - offset, i + offset
        at_left, at_right = inside & (left >= 0), right < tokens
        if HAS_PROTECTED:
            at_left &= tl.load(protected + head + left, mask=at_left, other=1) == 0
            at_right &= tl.load(protected + head + right, mask=at_right, other=1) == 0
        before = tl.load(scores + head + left, mask=at_left, other=0.0).to(mine.dtype)
        after = tl.load(scores + head + right, mask=at_right, other=0.0).to(mine.dtype)
        # the lowest index wins a tie: strict on the left, not on the right
        kept = kept & ((mine > before) | ~at_left) & ((mine >= after) | ~at_right)
    out = tl.where(kept | aside, mine, mine * GAMMA)
    if raw.dtype == tl.bfloat16:
        # half to even by hand: the interpreter's own conversion cuts the low bits off
        bits = out.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        tl.store(discounted + head + i, bits.to(tl.uint16).to(raw.dtype, bitcast=True), mask=inside)
    else:
        tl.store(discounted + head + i, out.to(raw.dtype), mask=inside)


def smd(
    scores: Tensor, radius: int = 2, gamma: float = 0.5, protected: Tensor | None = None
) -> Tensor:
    scores = scores.contiguous()
    protected = None if protected is None else protected.contiguous()
    discounted = torch.empty_like(scores)
    tokens, block = scores.shape[-1], 256
    if scores.numel():
        grid = (scores.numel() // tokens, triton.cdiv(tokens, block))
        smd_kernel[grid](
            scores, scores if protected is None else protected, discounted,
            tokens, min(radius, tokens),
            GAMMA=gamma, HAS_PROTECTED=protected is not None, BLOCK=block,  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
    return discounted
