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
    killer="hex/test_spectrum.py::test_large_circulant_masks_have_the_singular_values_of_fourier",
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
    "the mean is taken out of every mask, though it is the first part of a biregular one alone",
    killer="hex/test_spectrum.py::test_the_second_singular_value_is_the_second_of_the_mask",
)
def deflate_any_mask(mask):
    """Subtract the density."""
    if min(mask.shape) < 2:
        return 0.0
    return torch.linalg.matrix_norm(mask.double() - mask.double().mean(), 2).item()


@mutant(
    "second_singular_value",
    "the eigenvalues of a square mask are its singular values: so they are if it is normal",
    killer="hex/test_spectrum.py::test_the_second_singular_value_is_the_second_of_the_mask",
)
def eigenvalues_of_the_mask(mask):
    """Take magnitudes of eigenvalues."""
    if mask.shape[0] != mask.shape[1] or len(mask) < 2:
        return reference.second_singular_value(mask)
    return torch.linalg.eigvals(mask.double()).abs().sort().values[-2].item()


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


@mutant(
    "is_ramanujan",
    "the bound is the sum of the roots of the degrees, not of the degrees less 1",
    killer="test_vectors.py::test_vector[expander-a-band-of-three-in-sixteen-is-not",
)
def roots_of_the_degrees(mask):
    """Forget to take 1 off."""
    degrees = sorted(set(mask.sum(1).tolist())), sorted(set(mask.sum(0).tolist()))
    if [len(side) for side in degrees] != [1, 1] or min(degrees)[0] < 3:
        return False
    bound = math.sqrt(degrees[0][0]) + math.sqrt(degrees[1][0])
    return reference.second_singular_value(mask) <= bound


@mutant(
    "spectral_gap",
    "the second distance is left out",
    killer="test_vectors.py::test_vector[expander-one-edge-has-no-gap-as-bipartite",
)
def first_distance_alone(adjacency, bipartite=False, two_sided=False):
    """Measure to the second eigenvalue, unless both sides are asked for."""
    if two_sided:
        return reference.spectral_gap(adjacency, bipartite, two_sided)
    values = torch.linalg.eigvalsh(adjacency.double())
    return (values[-1] - values[-2]).item()


@mutant(
    "spectral_gap",
    "both sides are looked at whether asked for or not",
    killer="hex/test_expansion.py::"
    "test_the_gap_is_the_smaller_of_two_distances_from_the_first_eigenvalue",
)
def always_two_sided(adjacency, bipartite=False, two_sided=False):
    """Take magnitudes."""
    return reference.spectral_gap(adjacency, bipartite, True)
