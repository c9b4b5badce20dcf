"""Other correct ways to choose degrees and to draw expanders."""

from fractions import Fraction
from math import sqrt

import numpy as np
import torch

import reference
from spec_tests.hex.random_biregular.variants import swap_edge_by_edge
from spec_tests.variants.registry import register_variant


@register_variant("biregular_degrees", "values")
def by_products(tokens, channels, density, near=False):
    """Round the density times the number of channels, and divide the edges among channels."""
    share = Fraction(str(density)).limit_denominator(10**6)
    token = round(share * channels)
    if not near and (share * channels != token or (tokens * token) % channels):
        raise ValueError(f"density must give whole degrees, got {density}")
    channel = tokens * token // channels
    if not near and min(token, channel) < 3:
        raise ValueError(f"density must give degrees of at least 3, got {density}")
    return reference.Degrees(token, channel)


def filled(tokens, channels, degree, generator):
    """Give every token the channels with the most free places, ties at random; this never fails."""
    edges = tokens * degree
    room = np.full(channels, edges // channels)
    room[generator.permutation(channels)[: edges % channels]] += 1
    mask = np.zeros((tokens, channels), bool)
    for row in mask:
        order = np.lexsort((generator.random(channels), -room))
        row[order[:degree]] = True
        room -= row
    return mask


def shuffled(mask, generator):
    """Exchange the ends of two random edges many times."""
    edges = np.argwhere(mask)
    for _ in range(20 * len(edges)):
        i, j = generator.integers(0, len(edges), 2)
        (t, c), (u, d) = edges[i], edges[j]
        if not mask[t, d] and not mask[u, c]:
            mask[t, c] = mask[u, d] = False
            mask[t, d] = mask[u, c] = True
            edges[i, 1], edges[j, 1] = d, c
    return mask


def joined(mask, seed):
    """Connect the components of a mask."""
    degree = int(mask[0].sum())
    pairs = torch.from_numpy(np.nonzero(mask)[1].reshape(len(mask), degree))
    return reference.biadjacency(swap_edge_by_edge(pairs, mask.shape[1], seed), mask.shape[1])


@register_variant("random_expander", "values")
def by_switches(tokens, channels, token_degree, seed=0, near=False):
    """Start from any graph with the degrees, and change it by random switches."""
    generator = np.random.default_rng(seed)
    whole, rest = divmod(tokens * token_degree, channels)
    certified = not rest and min(token_degree, whole) >= 3
    for draws in range(1, 1001):
        mask = shuffled(filled(tokens, channels, token_degree, generator), generator)
        if not certified:
            return reference.Expander(joined(mask, seed), draws)
        second = np.linalg.svd(mask.astype(float), compute_uv=False)[1]
        if second <= (sqrt(token_degree - 1) + sqrt(whole - 1)) * (1 + 1e-12):
            return reference.Expander(torch.from_numpy(mask), draws)
    raise RuntimeError("no expander found")


@register_variant("expander_mask", "values")
def by_blocks(tokens, channels, density, seed=0, near=False, tile=False, block=96):
    """Draw one graph for all tokens, or repeat that of a block."""
    rows = block if tile else tokens
    degree = reference.biregular_degrees(rows, channels, density, near).token
    mask = reference.random_expander(rows, channels, degree, seed, near).mask
    return torch.cat([mask] * (tokens // rows))
