"""A few columns that span most of a matrix, by power iteration."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from reference.kinds import Finite, Positive, Seed, Whole
from reference.precision import widen


class LowRank(NamedTuple):
    """Two factors: the matrix they stand for is `left @ right.mT`.

    Source:
        HEX-GEAR.
    """

    left: Float[Tensor, "*batch rows rank"]
    right: Float[Tensor, "*batch columns rank"]


def low_rank(
    x: Finite[Tensor, "*batch rows columns"], rank: Whole, rounds: Positive = 3, seed: Seed = 0
) -> LowRank:
    r"""Project a matrix onto the space that a block of columns tends to under its powers.

    $$A_i = R B_{i-1}, \quad B_i = R^\top A_i, \qquad
      A_m = \mathrm{orth}(R\, \mathrm{orth}(B_{m-1})), \qquad L = A_m B_m^\top$$

    Args:
        x: matrices $R$.
        rank: columns $r$ of the block $B_0$.
        rounds: how often $m$ the block passes through the matrix and back.
        seed: names the block.

    Returns:
        The factors $A_m$, of orthonormal columns, and $B_m = R^\top A_m$, in float32 or float64.
        They have $\min(r, \text{rows}, \text{columns})$ columns, and are zero for a zero matrix.
        A block of higher rank begins with the same columns, so that $\|R - L\|$ does not grow
        with the rank.

    Source:
        HEX-GEAR.

    Reading:
        E-H43: the block is drawn evenly from [−1, 1), the same for every matrix; `orth` keeps the
        first column's direction; the powers are of $R$ over its largest entry.
    """
    wide = widen(x)
    rows, columns = x.shape[-2:]
    rank = min(rank, rows, columns)
    factors = LowRank(
        wide.new_zeros(*x.shape[:-2], rows, rank), wide.new_zeros(*x.shape[:-2], columns, rank)
    )
    if rank == 0:
        return factors
    block = start_block(columns, rank, seed).to(wide)
    for place in np.ndindex(*x.shape[:-2]):
        largest = wide[place].abs().max()
        if largest == 0:
            continue
        matrix, right = wide[place] / largest, block
        for _ in range(rounds - 1):
            right = matrix.T @ (matrix @ right)
        left = orthonormal(matrix @ orthonormal(right))
        factors.left[place] = left
        factors.right[place] = matrix.T @ left * largest
    return factors


def start_block(columns: int, rank: int, seed: int) -> Tensor:
    """Draw the columns that the iteration starts from, one after the other."""
    # numpy promises that the streams of RandomState never change
    generator = np.random.RandomState([seed, 4])
    return torch.from_numpy(2 * generator.random_sample((rank, columns)) - 1).T


def orthonormal(x: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns, each on the side of its column."""
    basis, triangle = torch.linalg.qr(x)
    return torch.where(triangle.diagonal(dim1=-2, dim2=-1) < 0, -basis, basis)
