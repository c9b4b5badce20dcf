"""Lubotzky–Phillips–Sarnak graphs by whole arrays."""

import numpy as np
import torch
from torch import Tensor


def _edges(prime: int, modulus: int, sources: np.ndarray, targets: np.ndarray) -> Tensor:
    """Return the mask of edges: each source times the p + 1 generators, found in the targets."""
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
    """Return a number for each matrix that increases in the order of `_members`."""
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


def lps_mask(prime: int, modulus: int) -> Tensor:
    return _edges(prime, modulus, _members(modulus, True), _members(modulus, False))


def lps_graph(prime: int, modulus: int) -> Tensor:
    members = _members(modulus, True)
    return _edges(prime, modulus, members, members)
