"""Outliers: the largest and the smallest members of each row."""

from fractions import Fraction

import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract.types import Finite, Ratio


def outlier_mask(
    x: Finite[Tensor, "*rows members"], ratio: Ratio = 0.02
) -> Bool[Tensor, "*rows members"]:
    r"""Mark as many of the largest members of each row as of the smallest.

    $$S = \mathrm{top}_k(x) \cup \mathrm{top}_k(-x), \qquad
      k = \lfloor \tfrac{s}{2}\, n \rfloor$$

    Args:
        x: rows of $n$ members.
        ratio: share $s$ of a row that is stored apart, taken as its decimal text.

    Returns:
        The mask: exactly $2k$ members a row. Among equals the earlier count as the larger.

    Source:
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR's sparse outliers and does not
        define them (E-H40, E-H71).

    Reading:
        E-H40, E-H71: $k$ is rounded down at each end; both ends are those of one order, so that no
        member is both; the authors' code takes $n$ from the values for keys too.
    """
    order = x.sort(dim=-1, descending=True, stable=True).indices
    mask = torch.zeros_like(x, dtype=torch.bool)
    for rank in range(outliers_per_end(x.shape[-1], ratio)):
        for end in (rank, x.shape[-1] - 1 - rank):
            mask.scatter_(-1, order[..., end : end + 1], True)
    return mask


def outliers_per_end(members: int, ratio: float) -> int:
    """Return how many members are set apart at each end of a row."""
    return Fraction(str(ratio)) * members // 2
