"""A few columns that span most of a matrix, by power iteration."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.types import Finite, Positive, Seed, Whole
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
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR's low-rank correction and does
        not define it (E-H43).

    Reading:
        E-H43: the block is drawn evenly from [−1, 1), the same for every matrix; `orth` keeps the
        first column's direction; the powers are of $R$ over its largest entry.
    """
    wide, (rows, width) = widen(x), x.shape[-2:]
    block = start_block(width, min(rank, rows, width), seed).to(wide)
    left = wide.new_zeros(*x.shape[:-2], rows, block.shape[-1])
    right = wide.new_zeros(*x.shape[:-2], width, block.shape[-1])
    for index in np.ndindex(*x.shape[:-2]):
        if not block.numel() or not wide[index].any():
            continue
        largest, columns = wide[index].abs().max(), block
        matrix = wide[index] / largest
        for _ in range(rounds - 1):
            columns = matrix.T @ (matrix @ columns)
        left[index] = orthonormal(matrix @ orthonormal(columns))
        right[index] = matrix.T @ left[index] * largest
    return LowRank(left, right)


def start_block(columns: int, rank: int, seed: int) -> Tensor:
    """Draw the columns that the iteration starts from, one after the other."""
    # numpy promises that the streams of RandomState never change
    generator = np.random.RandomState([seed, 4])
    return torch.from_numpy(2 * generator.random_sample((rank, columns)) - 1).T


def orthonormal(x: Tensor) -> Tensor:
    """Return an orthonormal basis of the columns, each on the side of its column."""
    basis, triangle = torch.linalg.qr(x)
    turned = triangle.diagonal(dim1=-2, dim2=-1)[..., None, :] < 0
    return torch.where(turned, -basis, basis)
