"""Sub-tile masks on whole arrays."""

import numpy as np
import torch
from torch import Tensor

from optimized.vector.hex.spectrum import is_ramanujan
from reference.hex.expander import DRAWS
from reference.hex.subtile_expander import SubtileExpander


def subtile_codes(
    tokens: int, heads: int, seed: int, draw: int, width: int, subtile: int
) -> Tensor:
    generator = np.random.RandomState([seed, draw, 2])
    drawn = generator.randint(0, width, (heads, tokens // subtile, 4), dtype=np.int64)
    drawn[..., ::2] |= 1
    return torch.from_numpy((drawn << np.array([0, 8, 16, 24])).sum(-1))


def subtile_permutations(codes: Tensor, width: int) -> Tensor:
    multiplier, offset, second, last = (codes[..., None] >> shift & 255 for shift in (0, 8, 16, 24))
    y = (multiplier * torch.arange(width, device=codes.device) + offset) % width
    return (second * (y ^ y >> width.bit_length() // 2) + last) % width


def subtile_mask(permutations: Tensor, subtile: int) -> Tensor:
    heads, subtiles, width = permutations.shape
    owned = permutations.reshape(heads, subtiles * subtile, width // subtile).transpose(0, 1)
    mask = torch.zeros(
        subtiles * subtile, heads, width, dtype=torch.bool, device=permutations.device
    )
    return mask.scatter_(2, owned, True).flatten(1)


def subtile_expander(
    tokens: int, heads: int, seed: int, width: int, subtile: int
) -> SubtileExpander:
    for draw in range(DRAWS):
        codes = subtile_codes(tokens, heads, seed, draw, width, subtile)
        if is_ramanujan(subtile_mask(subtile_permutations(codes, width), subtile)):
            return SubtileExpander(codes, draw + 1)
    raise RuntimeError(f"no expander among {DRAWS} draws of {tokens} tokens and {heads} heads")
