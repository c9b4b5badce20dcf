"""Low-rank approximation by power iteration, of all matrices at once."""

from torch import Tensor

from reference.precision import widen
from reference.quantizers.low_rank import LowRank, orthonormal, start_block


def low_rank(x: Tensor, rank: int, rounds: int, seed: int) -> LowRank:
    wide, (rows, columns) = widen(x), x.shape[-2:]
    right = start_block(columns, min(rank, rows, columns), seed).to(wide)
    right = right.expand(*x.shape[:-2], *right.shape)
    if not right.numel():
        return LowRank(wide.new_zeros(*x.shape[:-1], right.shape[-1]), right)
    largest = wide.abs().amax((-2, -1), keepdim=True)
    nothing = largest == 0
    matrix = wide / largest.masked_fill(nothing, 1)
    for _ in range(rounds - 1):
        right = matrix.mT @ (matrix @ right)
    left = orthonormal(matrix @ orthonormal(right))
    return LowRank(left.masked_fill(nothing, 0), matrix.mT @ left * largest)
