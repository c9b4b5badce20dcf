"""Other correct ways to count covered segments."""

import math

import numpy as np
import torch

from spec_tests.variants.registry import register_variant


@register_variant("segment_coverage")
def by_sets(order, tokens, segments=64):
    """Keep a set of the covered segments, one row after another."""
    out = torch.zeros(order.shape)
    for row in np.ndindex(order.shape[:-1]):
        seen = set()
        for t, place in enumerate(order[row].tolist()):
            segment = segments * place // tokens
            out[(*row, t)] = 0 if segment in seen else 1 / segments
            seen.add(segment)
    return out


@register_variant("segment_coverage", "values")
def by_comparing_picks(order, tokens, segments=64):
    """A pick gains if no earlier one is in its segment."""
    segment = segments * order // tokens
    same = segment[..., :, None] == segment[..., None, :]
    return (~same.tril(-1).any(-1)).float() / segments


@register_variant("uniform_spread")
def by_ceiling(tokens, picks):
    """Round up."""
    return torch.tensor([math.ceil(k * tokens / picks) for k in range(picks)], dtype=torch.int64)


@register_variant("uniform_spread", "values")
def by_whole_numbers(tokens, picks):
    """Add a little, and round down."""
    return (torch.arange(picks) * tokens + picks - 1) // picks


@register_variant("random_order")
def by_shuffling(tokens, seed):
    """Shuffle the positions with NumPy's legacy generator."""
    order = np.arange(tokens)
    np.random.RandomState(seed).shuffle(order)
    return torch.from_numpy(order)
