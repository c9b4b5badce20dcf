"""Other correct ways to draw codes of sub-tiles, to decode them, and to assign channels."""

import torch

import reference
from spec_tests.variants.registry import register_variant


def from_pytorch(tokens, heads, seed=0, draw=0, width=128, subtile=32):
    """Draw the four bytes from PyTorch."""
    generator = torch.Generator().manual_seed(1_000_003 * draw + seed)
    shape = (4, heads, tokens // subtile)
    a, b, c, d = torch.randint(0, width, shape, generator=generator)
    return (a | 1) | b << 8 | (c | 1) << 16 | d << 24


def by_owner(permutations, subtile=32):
    """A channel's place in its permutation, divided by the channels a token, is its token."""
    heads, subtiles, width = permutations.shape
    owner = permutations.argsort(-1) // (width // subtile)
    here = torch.arange(subtile, device=permutations.device)
    mask = owner[:, :, None, :] == here[:, None]
    return mask.permute(1, 2, 0, 3).reshape(subtiles * subtile, heads * width)


@register_variant("subtile_expander")
def first_that_passes(tokens, heads, seed=0, width=128, subtile=32):
    """Draw other codes, and test each mask by its singular values."""
    for draw in range(1000):
        codes = from_pytorch(tokens, heads, seed, draw, width, subtile)
        mask = by_owner(reference.subtile_permutations(codes, width), subtile)
        d1, d2 = heads * width // subtile, tokens // subtile
        second = torch.linalg.svdvals(mask.double())[1]
        if second <= ((d1 - 1) ** 0.5 + (d2 - 1) ** 0.5) * (1 + 1e-12):
            return reference.SubtileExpander(codes, draw + 1)
    raise RuntimeError("no expander found")
