"""What HubKV's functions refuse, in the voice of `reference.errors`."""

import math

import torch
from torch import Tensor

from reference import errors


def clip_bounds(low_name: str, low: float, high_name: str, high: float) -> None:
    """Refuse a lower bound that is not finite and above 0, and an upper bound below it."""
    errors.number(low_name, low)
    errors.number(high_name, high)
    if not 0 < low < math.inf:
        raise ValueError(f"{low_name} must be finite and > 0, got {low}")
    if not high >= low:
        raise ValueError(f"{high_name} must be >= {low_name}, which is {low}, got {high}")


def covering(name: str, totals: Tensor) -> None:
    """Refuse a kernel that covers nothing around some token."""
    if torch.compiler.is_compiling():
        return
    if not bool((totals > 0).all()):
        raise ValueError(
            f"{name} must sum to > 0 around every token, got {totals[~(totals > 0)][0].item()}"
        )


def layer_room(name: str, mean: int, protected: Tensor) -> None:
    """Refuse a mean budget of a head that leaves no room for the protected tokens of some layer."""
    if torch.compiler.is_compiling() or protected.numel() == 0:
        return
    heads, most = protected.shape[-2], int(protected.sum((-2, -1)).max())
    if mean * heads < most:
        raise ValueError(f"{name} must be >= {-(-most // heads)} to hold {most}, got {mean}")
