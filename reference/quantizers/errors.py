"""What the quantisers refuse, in the voice of `reference.errors`."""

import torch
from torch import Tensor

from reference import errors
from reference.hex import cache_errors
from reference.kinds import Scales

SEEDS = 2**32 - 1
SCALES = (None, torch.float16, torch.float32)
SIDES = ("channel", "token")


def kivi(width: int, bits: int, group: int, residual: int, scales: Scales) -> None:
    """Refuse settings of KIVI outside their ranges, or that do not divide each other."""
    errors.whole("bits", bits, 1, 8)
    errors.whole("group", group, 1)
    errors.whole("residual", residual, 1)
    if residual % group:
        raise ValueError(f"residual must be a multiple of group = {group}, got {residual}")
    if width % group:
        raise ValueError(f"group must divide the {width} channels of a head, got {group}")
    errors.one_of("scales", scales, SCALES)


def arrival(cache: tuple, kind: type, keys: Tensor, values: Tensor) -> None:
    """Refuse what is no cache of a kind, and new tokens that do not fit it."""
    cache_errors.instance("cache", cache, kind)
    cache_errors.cache(keys, values)
    cache_errors.joins(keys, cache.residual_keys)  # pyright: ignore[reportAttributeAccessIssue]


def span(name: str, x: Tensor) -> None:
    """Refuse keys or values that are not finite, or without a head and a channel."""
    errors.floating(name, x, 3)
    errors.finite(name, x)
    if x.shape[-3] == 0 or x.shape[-1] == 0:
        raise ValueError(f"{name} must have a head and a channel, got shape {tuple(x.shape)}")


def gear(bits: int, outliers: float, rank: int, seed: int, scales: Scales) -> None:
    """Refuse settings of GEAR outside their ranges."""
    errors.whole("bits", bits, 1, 8)
    errors.fraction("outliers", outliers)
    errors.whole("rank", rank)
    errors.whole("seed", seed, 0, SEEDS)
    errors.one_of("scales", scales, SCALES)


def streaming(decoded_rank: int, block: int) -> None:
    """Refuse settings of GEAR's stream outside their ranges."""
    errors.whole("decoded_rank", decoded_rank)
    errors.whole("block", block, 1)
