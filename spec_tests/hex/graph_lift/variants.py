"""Other correct ways to cover a graph and to compute the new singular values."""

from math import sqrt

import torch

import reference
from spec_tests.variants.registry import register_variant


def by_blocks(mask, permutations):
    """Put the permutation matrix of each edge into its block."""
    tokens, channels = mask.shape
    sheets = permutations.shape[1]
    blocks = mask.new_zeros(tokens, channels, sheets, sheets)
    blocks[mask] = torch.eye(sheets, dtype=torch.bool, device=mask.device)[permutations]
    return blocks.permute(0, 2, 1, 3).reshape(tokens * sheets, channels * sheets)


@register_variant("new_singular_value")
def off_the_constant(mask, permutations):
    """Use a basis of each fibre that starts with a constant vector, and leave that one out."""
    sheets = permutations.shape[1]
    lifted = by_blocks(mask, permutations).double()
    if sheets == 1 or not lifted.numel():
        return 0.0
    constant = torch.ones(sheets, 1, dtype=torch.float64)
    basis = torch.linalg.qr(torch.cat([constant, torch.eye(sheets).double()[:, 1:]], 1)).Q[:, 1:]
    blocks = lifted.reshape(len(mask), sheets, mask.shape[1], sheets)
    new = torch.einsum("tick,ia,kb->tacb", blocks, basis, basis)
    return torch.linalg.svdvals(new.reshape(len(mask) * (sheets - 1), -1))[0].item()


@register_variant("ramanujan_lift", "values")
def from_pytorch(mask, sheets=2, seed=0):
    """Draw permutations with PyTorch; test the spectrum of the whole covering."""
    generator = torch.Generator().manual_seed(seed)
    edges = int(mask.sum())
    bound = sqrt(int(mask[0].sum()) - 1) + sqrt(int(mask[:, 0].sum()) - 1)
    for draws in range(1, 1001):
        keys = torch.rand(edges, sheets, generator=generator, dtype=torch.float64)
        covering = by_blocks(mask, keys.argsort(1))
        if torch.linalg.svdvals(covering.double())[1] <= bound * (1 + 1e-12):
            return reference.Expander(covering, draws)
    raise RuntimeError("no covering found")
