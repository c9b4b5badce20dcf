"""Lubotzky-Phillips-Sarnak graphs with vertices in another order, which the theorem leaves open."""

import torch

import reference
from spec_tests.variants.registry import register_variant


def relabelled(graph):
    """Return a graph with its rows and columns in one other order."""
    order = torch.randperm(len(graph), generator=torch.Generator().manual_seed(0))
    return graph[order][:, order]


@register_variant("lps_graph", "values")
def relabelled_graph(prime, modulus):
    """Rename the vertices."""
    return relabelled(reference.lps_graph(prime, modulus))


@register_variant("lps_mask", "values")
def relabelled_mask(prime, modulus):
    """Rename the tokens and the channels."""
    return relabelled(reference.lps_mask(prime, modulus))
