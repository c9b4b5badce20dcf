"""Sub-tile masks, Lubotzky–Phillips–Sarnak graphs and coverings by whole arrays."""

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from optimized.vector.spectrum import is_ramanujan, ramanujan_bound
from reference.hex.expander import DRAWS, Expander
from reference.hex.spectrum import ROUNDING
from reference.hex.subtile import SubtileExpander


def subtile_codes(
    tokens: int,
    heads: int,
    seed: int = 0,
    draw: int = 0,
    width: int = 128,
    subtile: int = 32,
) -> Int64[Tensor, "heads subtiles"]:
    generator = np.random.RandomState([seed, draw, 2])
    drawn = generator.randint(0, width, (heads, tokens // subtile, 4), dtype=np.int64)
    drawn[..., ::2] |= 1
    return torch.from_numpy((drawn << np.array([0, 8, 16, 24])).sum(-1))


def subtile_permutations(
    codes: Int64[Tensor, "*heads"], width: int = 128
) -> Int64[Tensor, "*heads width"]:
    multiplier, offset, second, last = (codes[..., None] >> shift & 255 for shift in (0, 8, 16, 24))
    y = (multiplier * torch.arange(width, device=codes.device) + offset) % width
    return (second * (y ^ y >> width.bit_length() // 2) + last) % width


def subtile_mask(
    permutations: Int64[Tensor, "heads subtiles width"], subtile: int = 32
) -> Bool[Tensor, "tokens channels"]:
    heads, subtiles, width = permutations.shape
    owned = permutations.reshape(heads, subtiles * subtile, width // subtile).transpose(0, 1)
    mask = torch.zeros(
        subtiles * subtile, heads, width, dtype=torch.bool, device=permutations.device
    )
    return mask.scatter_(2, owned, True).flatten(1)


def subtile_expander(
    tokens: int, heads: int, seed: int = 0, width: int = 128, subtile: int = 32
) -> SubtileExpander:
    for draw in range(DRAWS):
        codes = subtile_codes(tokens, heads, seed, draw, width, subtile)
        if is_ramanujan(subtile_mask(subtile_permutations(codes, width), subtile)):
            return SubtileExpander(codes, draw + 1)
    raise RuntimeError(f"no expander among {DRAWS} draws of {tokens} tokens and {heads} heads")


def lps_mask(prime: int, modulus: int) -> Bool[Tensor, "tokens channels"]:
    return _edges(prime, modulus, _members(modulus, True), _members(modulus, False))


def lps_graph(prime: int, modulus: int) -> Bool[Tensor, "vertices vertices"]:
    members = _members(modulus, True)
    return _edges(prime, modulus, members, members)


def _edges(prime: int, modulus: int, sources: np.ndarray, targets: np.ndarray) -> Tensor:
    """Return the products of the sources with the p + 1 generators, as places among the targets."""
    images = sources[:, None] @ _generators(prime, modulus)
    rows = images.reshape(len(sources), -1, 4) % modulus
    places = np.searchsorted(_order(targets, modulus), _order(_projective(rows, modulus), modulus))
    mask = torch.zeros(len(sources), len(targets), dtype=torch.bool)
    return mask.scatter_(1, torch.from_numpy(places), True)


def _generators(prime: int, modulus: int) -> np.ndarray:
    reach = np.arange(-int(prime**0.5), int(prime**0.5) + 1)
    a, b, c, d = np.stack(np.meshgrid(reach, reach, reach, reach, indexing="ij")).reshape(4, -1)
    odd = (a > 0) & (a % 2 == 1) & (b % 2 == 0) & (c % 2 == 0) & (d % 2 == 0)
    a, b, c, d = np.stack([a, b, c, d])[:, odd & (a**2 + b**2 + c**2 + d**2 == prime)]
    root = int(np.flatnonzero((np.arange(modulus) ** 2 + 1) % modulus == 0)[0])
    rows = [a + root * b, c + root * d, -c + root * d, a - root * b]
    return np.stack(rows, -1).reshape(-1, 2, 2) % modulus


def _projective(rows: np.ndarray, modulus: int) -> np.ndarray:
    first = np.where(rows[..., 0] != 0, rows[..., 0], rows[..., 1])
    inverse = np.array([0, *(pow(x, -1, modulus) for x in range(1, modulus))])
    return rows * inverse[first][..., None] % modulus


def _order(rows: np.ndarray, modulus: int) -> np.ndarray:
    """Return a number that grows in the order of `_members`."""
    flat = rows.reshape(*rows.shape[: -2 if rows.shape[-2:] == (2, 2) else -1], 4)
    return (1 - flat[..., 0]) * modulus**3 + flat[..., 1:] @ modulus ** np.array([2, 1, 0])


def _members(modulus: int, square: bool) -> np.ndarray:
    field = np.arange(modulus)
    grid = np.stack(np.meshgrid(field, field, field, indexing="ij"), -1).reshape(-1, 3)
    with_one = np.concatenate([np.ones((len(grid), 1), np.int64), grid], 1)
    flat = np.concatenate([with_one, with_one[with_one[:, 1] == 0][:, [1, 0, 2, 3]]])
    determinant = (flat[:, 0] * flat[:, 3] - flat[:, 1] * flat[:, 2]) % modulus
    squares = np.isin(determinant, field[1:] ** 2 % modulus)
    return flat[(determinant != 0) & (squares == square)].reshape(-1, 2, 2)


def lift(
    mask: Bool[Tensor, "tokens channels"], permutations: Int64[Tensor, "edges sheets"]
) -> Bool[Tensor, "lifted_tokens lifted_channels"]:
    tokens, channels = mask.shape
    sheets = permutations.shape[1]
    lifted = mask.new_zeros(tokens, sheets, channels, sheets)
    token, channel = mask.nonzero(as_tuple=True)
    copies = torch.arange(sheets, device=mask.device)
    lifted[token[:, None], copies, channel[:, None], permutations] = True
    return lifted.reshape(sheets * tokens, sheets * channels)


def new_singular_value(
    mask: Bool[Tensor, "tokens channels"], permutations: Int64[Tensor, "edges sheets"]
) -> float:
    lifted = lift(mask, permutations).double()
    sheets = permutations.shape[1]
    average = torch.full((sheets, sheets), 1 / sheets, dtype=torch.float64, device=mask.device)
    new = lifted - torch.kron(mask.double(), average)
    return torch.linalg.matrix_norm(new, 2).item() if new.numel() else 0.0


def ramanujan_lift(
    mask: Bool[Tensor, "tokens channels"], sheets: int = 2, seed: int = 0
) -> Expander:
    if not is_ramanujan(mask):
        raise ValueError(f"mask must be Ramanujan, got shape {tuple(mask.shape)}")
    bound = ramanujan_bound(int(mask[0].sum()), int(mask[:, 0].sum()))
    for draw in range(DRAWS):
        generator = np.random.RandomState([seed, draw, 3])
        keys = generator.random_sample((int(mask.sum()), sheets))
        permutations = torch.from_numpy(np.argsort(keys, axis=1, kind="stable")).to(mask.device)
        if new_singular_value(mask, permutations) <= bound * ROUNDING:
            return Expander(lift(mask, permutations), draw + 1)
    raise RuntimeError(f"no Ramanujan lift among {DRAWS} draws of {sheets} sheets")
