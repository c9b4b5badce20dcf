"""Lies about the mean rotation."""

import torch

import reference
from spec_tests.mutants.make import lies, mutant

lie = lies("scorers/mean_rotation")

lie(
    "turned_back",
    "the turn is the other way round",
    "angles = (first + step)",
    "angles = -(first + step)",
    "test_it_is_the_mean_of_the_rotated_vectors",
)


@mutant(
    "mean_rotation",
    "neighbouring channels turn together",
    killer="test_vectors.py::test_vector[mean_rotation-halves-turn-together]",
)
def neighbours_turn(frequencies, start, future=512):
    """Interleave the halves."""
    half = frequencies.shape[-1]
    order = torch.arange(2 * half).reshape(2, half).T.flatten()
    return reference.mean_rotation(frequencies, start, future)[..., order, :][..., :, order]


@mutant(
    "mean_rotation",
    "the middle position stands for all",
    killer="scorers/mean_rotation/test_laws.py::test_stretches_average_to_the_whole",
)
def middle_position(frequencies, start, future=512):
    """Rotate by one angle."""
    return reference.mean_rotation(frequencies, start + future // 2, 1)
