"""Sub-tile masks on whole arrays."""

import numpy as np
import torch
from torch import Tensor

import reference
from optimized._rebind import rebind
from optimized.vector.hex.spectrum import is_ramanujan


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


subtile_expander = rebind(
    reference.subtile_expander,
    subtile_codes=subtile_codes,
    subtile_permutations=subtile_permutations,
    subtile_mask=subtile_mask,
    is_ramanujan=is_ramanujan,
)
