"""What the scorers refuse, in the voice of `reference.errors`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reference import errors


def padding(valid: Tensor, shape: Sequence[int]) -> None:
    """Refuse what is not a mask of rows that are padded on the left, if at all."""
    errors.boolean("valid", valid, shape)
    if torch.compiler.is_compiling():
        return
    gaps = valid[..., :-1] & ~valid[..., 1:]
    if bool(gaps.any()):
        raise ValueError(
            f"valid must be false on the left of a row only, got false after true at position "
            f"{int(gaps.nonzero()[0, -1]) + 1}"
        )


def odd(name: str, value: int) -> None:
    """Refuse what is not an odd integer above 0."""
    errors.whole(name, value, 1)
    if value % 2 == 0:
        raise ValueError(f"{name} must be odd, got {value}")


def observers(count: int, window: int, tokens: int) -> None:
    """Refuse fewer queries than the window holds, or the whole of a shorter sequence."""
    if count < min(window, tokens):
        raise ValueError(
            f"queries must be at least the last {min(window, tokens)} of the window, got {count}"
        )


def carried(mass: Tensor, keys: Tensor) -> None:
    """Refuse a running sum that is not one of the first of these tokens."""
    errors.importance("mass", mass, 2)
    errors.shaped("mass", mass, (*keys.shape[:-2], min(mass.shape[-1], keys.shape[-2])))


def lengths(tokens: int | Tensor) -> None:
    """Refuse what is neither a number of tokens nor an int64 tensor of them."""
    if not isinstance(tokens, Tensor):
        errors.whole("tokens", tokens)
        return
    errors.integral("tokens", tokens, 0)
    if not torch.compiler.is_compiling() and bool((tokens < 0).any()):
        raise ValueError(f"tokens must be >= 0, got {int(tokens.min())}")
