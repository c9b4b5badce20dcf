"""Mutants of what makes a graph Ramanujan."""

import math

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "ramanujan_bound",
    "the balanced bound at the mean degree",
    killer="test_vectors.py::test_vector[expander-bound-of-the-block-mask",
)
def bound_at_the_mean_degree(token_degree, channel_degree):
    """Average the degrees first."""
    return 2 * math.sqrt((token_degree + channel_degree) / 2 - 1)


@mutant(
    "second_singular_value",
    "the first singular value is taken out wherever it occurs",
    killer="hex/test_spectrum.py::test_the_first_singular_value_occurs_once_for_each_component",
)
def skip_repeated_values(mask):
    """Look for the next smaller value."""
    values = torch.linalg.svdvals(mask.double())
    return next((v.item() for v in values if v < values[0] - 1 / 8), 0.0)


@mutant(
    "second_singular_value",
    "too few steps of power iteration",
    killer="hex/test_spectrum.py::test_a_large_mask_has_the_second_singular_value_of_a_dense_solver",
)
def stop_early(mask):
    """Iterate twice from a fixed start."""
    if min(mask.shape) < 2:
        return 0.0
    matrix = mask.double() - mask.double().mean()
    x = torch.linspace(-1, 1, mask.shape[1], dtype=torch.float64)
    for _ in range(2):
        x = matrix.T @ (matrix @ x)
        x = x / x.norm().clamp(min=1 / 1024)
    return (matrix @ x).norm().item()


@mutant(
    "second_singular_value",
    "of a constant mask the first singular value is reported",
    killer="hex/test_spectrum.py::"
    "test_a_large_mask_of_nothing_or_everything_has_no_second_singular_value",
)
def first_if_alone(mask):
    """Look for the largest value that is not 0."""
    if mask.numel() and mask.all():
        return float(mask.numel()) ** 0.5
    return reference.second_singular_value(mask)


@mutant(
    "is_ramanujan",
    "only the degrees and connectedness are looked at",
    killer="hex/test_spectrum.py::test_a_tiled_prompt_is_no_ramanujan_graph",
)
def connected_is_enough(mask):
    """Forget the spectrum."""
    regular = len(mask.sum(0).unique()) == len(mask.sum(1).unique()) == 1
    return regular and reference.is_connected(mask) and int(mask[0].sum()) >= 3


@mutant(
    "is_ramanujan",
    "degrees below 3 are let through",
    killer="hex/test_spectrum.py::test_degrees_below_three_are_not_ramanujan[",
)
def any_degree_will_do(mask):
    """Compare with the bound alone."""
    degrees = int(mask[0].sum()), int(mask[:, 0].sum())
    if min(degrees) < 1:
        return True
    return reference.second_singular_value(mask) <= reference.ramanujan_bound(*degrees) + 1 / 1024
