"""Hub detection and discounting in one pass: a program owns a block of tokens of one head."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from optimized.kernels._device import rounded, widened

BLOCK = 256


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
    mine = widened(raw)
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
        before = widened(tl.load(scores + head + left, mask=at_left, other=0.0))
        after = widened(tl.load(scores + head + right, mask=at_right, other=0.0))
        # the lowest index wins a tie: strict on the left, not on the right
        kept = kept & ((mine > before) | ~at_left) & ((mine >= after) | ~at_right)
    out = tl.where(kept | aside, mine, mine * GAMMA)
    tl.store(discounted + head + i, rounded(out, raw.dtype), mask=inside)


def smd(
    scores: Tensor, radius: int = 2, gamma: float = 0.5, protected: Tensor | None = None
) -> Tensor:
    scores = scores.contiguous()
    protected = None if protected is None else protected.contiguous()
    discounted = torch.empty_like(scores)
    tokens = scores.shape[-1]
    if scores.numel():
        grid = (scores.numel() // tokens, triton.cdiv(tokens, BLOCK))
        smd_kernel[grid](
            scores, scores if protected is None else protected, discounted,
            tokens, min(radius, tokens),
            GAMMA=gamma, HAS_PROTECTED=protected is not None, BLOCK=BLOCK,  # pyright: ignore[reportArgumentType]
        )  # fmt: skip
    return discounted
