"""How far a count of random events may be from what is expected."""

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
