"""What the functions on graphs refuse, in the voice of `reference.errors`, and their limits."""

from math import isqrt

import torch
from torch import Tensor

from reference import errors

SEEDS = 2**32 - 1
DRAWS = 1000
ROUNDS = 1000
VERTICES = 20

ROUNDING = 1 + 2**-40
"""Graphs may lie on the bound itself: rounding must not push them over it."""


def edges(name: str, pairs: Tensor, channels: int) -> None:
    """Refuse what is not an int64 matrix of channels, one row a token."""
    errors.whole("channels", channels, 1)
    errors.integral(name, pairs, 2)
    if pairs.ndim != 2:
        raise ValueError(f"{name} must have 2 axes, got shape {tuple(pairs.shape)}")
    bad = (pairs < 0) | (pairs >= channels)
    if bool(bad.any()):
        raise ValueError(f"{name} must be in [0, {channels - 1}], got {pairs[bad][0].item()}")


def swaps(pairs: Tensor, channels: int, seed: int, draw: int) -> None:
    """Refuse what no swaps can be made in."""
    edges("pairs", pairs, channels)
    errors.whole("seed", seed, 0, SEEDS)
    errors.whole("draw", draw, 0, SEEDS)


def multiple(name: str, value: int, of: str, unit: int) -> None:
    """Refuse what is not a multiple of another argument."""
    if value % unit:
        raise ValueError(f"{name} must be a multiple of {of} = {unit}, got {value}")


def biregular(tokens: int, channels: int, token_degree: int, near: bool) -> None:
    """Refuse sizes and degrees that no biregular graph has, or, if `near`, no graph at all."""
    errors.whole("tokens", tokens, 1)
    errors.whole("channels", channels, 1)
    errors.whole("token_degree", token_degree, 0 if near else 3, channels)
    if not near:
        channel_degree, rest = divmod(tokens * token_degree, channels)
        if rest or channel_degree < 3:
            raise ValueError(
                f"token_degree must give {channels} channels one whole degree of at least 3 "
                f"from {tokens} tokens, got {token_degree}"
            )


def matrix(name: str, mask: Tensor) -> None:
    """Refuse what is not a boolean matrix."""
    errors.boolean(name, mask)
    if mask.ndim != 2:
        raise ValueError(f"{name} must have 2 axes, got shape {tuple(mask.shape)}")


def graph(name: str, adjacency: Tensor, most: int | None = None) -> None:
    """Refuse what is not a symmetric boolean matrix of 2 to `most` vertices."""
    matrix(name, adjacency)
    vertices = adjacency.shape[0]
    if adjacency.shape[1] != vertices or not bool((adjacency == adjacency.T).all()):
        raise ValueError(f"{name} must be symmetric, got shape {tuple(adjacency.shape)}")
    if vertices < 2 or (most is not None and vertices > most):
        span = ">= 2" if most is None else f"in [2, {most}]"
        raise ValueError(f"{name} must have a number of vertices {span}, got {vertices}")


def subset(name: str, members: Tensor, vertices: int) -> None:
    """Refuse what is not a non-empty set of vertices."""
    errors.boolean(name, members, (vertices,))
    if not bool(members.any()):
        raise ValueError(f"{name} must have a member, got none")


def permutations(name: str, tensor: Tensor, axes: int) -> None:
    """Refuse what is not an int64 tensor of permutations along the last of its `axes` axes."""
    errors.integral(name, tensor, axes)
    length = tensor.shape[-1]
    ordered = tensor.sort(-1).values == torch.arange(length, device=tensor.device)
    if tensor.ndim != axes or length < 1 or not bool(ordered.all()):
        raise ValueError(
            f"{name} must be permutations along the last of {axes} axes, "
            f"got shape {tuple(tensor.shape)}"
        )


def codes(name: str, tensor: Tensor) -> None:
    """Refuse what is not an int64 tensor of four bytes, the first and the third odd."""
    errors.integral(name, tensor, 0)
    bad = (tensor < 0) | (tensor >= 2**32) | (tensor & 0x10001 != 0x10001)
    if bool(bad.any()):
        raise ValueError(
            f"{name} must be in [0, 2**32) with odd first and third bytes, "
            f"got {tensor[bad][0].item()}"
        )


def subtiles(width: int, subtile: int) -> None:
    """Refuse widths and sub-tiles that are not powers of two that fit."""
    power("width", width, 2, 256)
    power("subtile", subtile, 1, width)


def power(name: str, value: int, low: int, high: int) -> None:
    """Refuse what is not a power of two in [low, high]."""
    errors.whole(name, value, low, high)
    if value & (value - 1):
        raise ValueError(f"{name} must be a power of two in [{low}, {high}], got {value}")


def divides(name: str, value: int, of: str, total: int) -> None:
    """Refuse what does not divide another number."""
    if total % value:
        raise ValueError(f"{name} must divide the {of} = {total}, got {value}")


def lps(prime: int, modulus: int, square: bool) -> None:
    """Refuse what are not two primes of Lubotzky, Phillips and Sarnak's theorem."""
    for name, value in (("prime", prime), ("modulus", modulus)):
        errors.whole(name, value, 5)
        if value % 4 != 1 or any(value % factor == 0 for factor in range(2, isqrt(value) + 1)):
            raise ValueError(f"{name} must be a prime of the form 4k + 1, got {value}")
    if modulus == prime or modulus**2 <= 4 * prime:
        raise ValueError(f"modulus must be another prime, above 2 sqrt({prime}), got {modulus}")
    # Euler: a square to the power (q - 1)/2 is 1, anything else -1
    if (pow(prime, modulus // 2, modulus) == 1) != square:
        kind = "a square" if square else "no square"
        raise ValueError(f"prime must be {kind} modulo {modulus}, got {prime}")


def csr(offsets: Tensor, columns: Tensor, channels: int) -> None:
    """Refuse what are not the offsets and columns of compressed sparse rows."""
    errors.whole("channels", channels)
    for name, tensor in (("offsets", offsets), ("columns", columns)):
        errors.integral(name, tensor, 1)
        if tensor.ndim != 1:
            raise ValueError(f"{name} must have 1 axis, got shape {tuple(tensor.shape)}")
    entries = len(columns)
    ends = offsets[[0, -1]].tolist() if len(offsets) else []
    if ends != [0, entries] or bool((offsets.diff() < 0).any()):
        raise ValueError(
            f"offsets must ascend from 0 to the number of columns = {entries}, "
            f"got {offsets.tolist()}"
        )
    bad = (columns < 0) | (columns >= channels)
    if bool(bad.any()):
        raise ValueError(f"columns must be in [0, {channels - 1}], got {columns[bad][0].item()}")
