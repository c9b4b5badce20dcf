"""How far a count of random events may be from what is expected, and what a mask allows."""

import torch
from torch import Tensor


def assert_within_five_deviations(counts: Tensor, mean: float, variance: float) -> None:
    """Each count is within five standard deviations of its mean."""
    far = (counts - mean).abs().max() / variance**0.5
    assert far <= 5, f"{counts} is {far:.1f} standard deviations from {mean}"


def spectral_scale(mask: Tensor) -> float:
    """Return what rounding errors of a singular value are measured by: sizes times the largest."""
    largest = torch.linalg.matrix_norm(mask.double(), 2).item() if mask.numel() else 0.0
    return sum(mask.shape) * max(1.0, largest)


def fewest_components(mask: Tensor) -> int:
    """Return how few components a graph with the degrees of a mask can have.

    Vertices without an edge are alone; the others hang together, or are trees if edges are few.
    """
    edges, alone = int(mask.sum()), int((~mask.any(0)).sum() + (~mask.any(1)).sum())
    return alone + (max(1, sum(mask.shape) - alone - edges) if edges else 0)
