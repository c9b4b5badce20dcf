"""Mutants of GraphKV: what is said about keys."""

import torch

import reference
from spec_tests.mutants.make import mutant

KEYS = "graphkv/test_keys.py::test_"


@mutant(
    "cosine_matrix",
    "keys centred first",
    killer=f"{KEYS}the_matrix_is_the_graph_with_every_token_a_source",
)
def correlation(keys):
    """Correlate."""
    return reference.cosine_matrix(keys - keys.mean(-1, keepdim=True))


@mutant(
    "cosine_distribution",
    "each pair twice",
    killer=f"{KEYS}the_histogram_counts_every_pair_once",
)
def both_ways(keys, bins=50):
    """Count i, j and j, i."""
    found = reference.cosine_distribution(keys, bins)
    return found._replace(histogram=found.histogram * 2)


@mutant(
    "cosine_distribution",
    "tokens paired with themselves",
    killer=f"{KEYS}the_distribution_is_that_of_the_pairs_of_different_tokens",
)
def with_the_diagonal(keys, bins=50):
    """Average the whole matrix."""
    matrix = reference.cosine_matrix(keys).flatten(-2)
    number = max(1, matrix.shape[-1])
    mean = matrix.sum(-1) / number
    variance = (matrix - mean[..., None]).square().sum(-1) / number
    return reference.cosine_distribution(keys, bins)._replace(mean=mean, variance=variance)


@mutant(
    "cosine_distribution",
    "bins over [0, 1]",
    killer=f"{KEYS}a_bin_counts_the_pairs_between_its_edges",
)
def positive_bins(keys, bins=50):
    """Take it that keys are never opposed."""
    return reference.cosine_distribution(keys, bins)._replace(
        histogram=reference.cosine_distribution(keys, 2 * bins).histogram[..., bins:]
    )


@mutant(
    "principal_components", "not centred", killer=f"{KEYS}shifting_the_keys_changes_no_projection"
)
def uncentred(keys, components=2):
    """Decompose the keys with their mirror images, whose mean is 0."""
    both = torch.cat([keys, -keys], -2)
    return reference.principal_components(both, components)[..., : keys.shape[-2], :]


@mutant("principal_components", "least first", killer=f"{KEYS}components_vary_less_and_less")
def least_variance_first(keys, components=2):
    """Forget that eigenvalues come in ascending order."""
    return reference.principal_components(keys, components).flip(-1)


@mutant(
    "principal_components",
    "any sign",
    killer=f"{KEYS}an_axis_points_where_its_largest_coordinate_is_positive",
)
def any_sign(keys, components=2):
    """Let the first token decide."""
    found = reference.principal_components(keys, components)
    return found * torch.where(found[..., :1, :] < 0, -1, 1)


@mutant("kv_bytes", "the caption's 32 heads", killer=f"{KEYS}table_5_is_reproduced")
def heads_of_the_caption(tokens, layers=32, heads=32, width=128, element_bytes=2):
    """Count query heads."""
    return reference.kv_bytes(tokens, layers, heads, width, element_bytes)


@mutant("kv_bytes", "a K of 1024 tokens", killer=f"{KEYS}table_5_is_reproduced")
def binary_thousands(tokens, layers=32, heads=8, width=128, element_bytes=2):
    """Read 16K as 16384."""
    tokens = tokens // 1000 * 1024 if tokens % 1000 == 0 else tokens
    return reference.kv_bytes(tokens, layers, heads, width, element_bytes)


@mutant("kv_bytes", "keys without values", killer=f"{KEYS}table_5_is_reproduced")
def keys_alone(tokens, layers=32, heads=8, width=128, element_bytes=2):
    """Forget the values."""
    return reference.kv_bytes(tokens, layers, heads, width, element_bytes) // 2
