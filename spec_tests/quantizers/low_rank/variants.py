"""Another power iteration, from another start."""

# pyright: reportPossiblyUnboundVariable=false

import torch

from reference import LowRank


def orthonormal_at_each_pass(x, rank, rounds=3, seed=0):
    """Orthonormalise the block after each pass, so that powers neither overflow nor vanish.

    The block is Gaussian, from a stream of torch.
    """
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    rank = min(rank, *x.shape[-2:])
    generator = torch.Generator().manual_seed(seed)
    right = [
        torch.randn(x.shape[-1], generator=generator, dtype=torch.float64) for _ in range(rank)
    ]
    right = torch.stack(right, -1) if rank else torch.zeros(x.shape[-1], 0, dtype=torch.float64)
    right = right.to(wide).expand(*x.shape[:-2], -1, -1)
    if not right.numel() or not x.numel():
        return LowRank(wide.new_zeros(*x.shape[:-1], rank), wide.new_zeros(right.shape))
    for _ in range(rounds):
        left = torch.linalg.qr(wide @ torch.linalg.qr(right).Q).Q
        right = wide.mT @ left
    nothing = (wide == 0).all(-1, keepdim=True).all(-2, keepdim=True)
    return LowRank(left.masked_fill(nothing, 0), right)
