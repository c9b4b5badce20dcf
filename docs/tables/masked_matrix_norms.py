"""Relative change of a matrix by masking: `python docs/tables/masked_matrix_norms.py`."""

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor

from optimized import expander_mask, second_singular_value

CHANNELS, DENSITY = 1024, 1 / 32
MASKS = ((96, False), (960, False), (1920, False), (1920, True))


def signs(rank: int) -> Callable[[int], Tensor]:
    """Return a function that makes a sum of outer products of sign vectors."""
    return lambda tokens: normal(tokens, rank).sign() @ normal(CHANNELS, rank).sign().T


def gaussian(rank: int) -> Callable[[int], Tensor]:
    """Return a function that makes a sum of outer products of Gaussian vectors."""
    return lambda tokens: normal(tokens, rank) @ normal(CHANNELS, rank).T


def single(tokens: int) -> Tensor:
    """Return a matrix with one nonzero entry: the first that the mask drops."""
    matrix = torch.zeros(tokens, CHANNELS, dtype=torch.float64)
    place = (~expander_mask(tokens, CHANNELS, DENSITY)).nonzero()[0].tolist()
    matrix[tuple(place)] = 1.0
    return matrix


def normal(rows: int, columns: int) -> Tensor:
    """Return standard normal numbers; the number of rows is the seed."""
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(rows, columns, generator=generator, dtype=torch.float64)


MATRICES: dict[str, Callable[[int], Tensor]] = {
    "signs, rank 1": signs(1),
    "signs, rank 4": signs(4),
    "signs, rank 16": signs(16),
    "Gaussian, rank 4": gaussian(4),
    "Gaussian, full rank": lambda tokens: normal(tokens, CHANNELS),
    "a single entry": single,
}


def change(mask: Tensor, matrix: Tensor) -> float:
    """Return the norm of the change by rescaled masking, over the norm of the matrix."""
    changed = mask.double() * matrix / DENSITY - matrix
    return float(torch.linalg.matrix_norm(changed, 2) / torch.linalg.matrix_norm(matrix, 2))


def main() -> None:
    """Print a line for each kind of matrix."""
    masks = [expander_mask(n, CHANNELS, DENSITY, tile=tile) for n, tile in MASKS]
    columns = [f"n = {n}" + ", tiled" * tile for n, tile in MASKS]
    print(f"| relative change, ‖M∘X/ρ − X‖/‖X‖ | {' | '.join(columns)} |")
    print("| --- " * (1 + len(MASKS)) + "|")
    ratios = [second_singular_value(mask) / (DENSITY * sqrt(mask.numel())) for mask in masks]
    print(f"| σ₂/σ₁ | {' | '.join(f'{ratio:.3f}' for ratio in ratios)} |")
    for name, make in MATRICES.items():
        found = [change(mask, make(len(mask))) for mask in masks]
        print(f"| {name} | {' | '.join(f'{value:.3f}' for value in found)} |", flush=True)


if __name__ == "__main__":
    main()
