"""What the functions on caches refuse, in the voice of `reference.errors`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reference import errors
from reference.hex.presets import HexConfig

MODES = ("append", "full", "oracle")
VALUE_GROUPS = ("token", "head")


def instance(name: str, value: object, kind: type) -> None:
    """Refuse what is not a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")


def config(name: str, value: object, given: object) -> None:
    """Refuse what is no configuration, or one outside its range, in the argument `given`."""
    if not isinstance(value, HexConfig):
        raise TypeError(f"{name} must be a HexConfig, got {given!r}")
    try:
        errors.whole("bits", value.bits, 1, 8)
        errors.fraction("density", value.density)
        errors.fraction("heavy", value.heavy)
        errors.whole("recent", value.recent)
        errors.whole("block", value.block, 1)
        errors.one_of("mode", value.mode, MODES)
        errors.whole("period", value.period, 1)
        errors.one_of("value_group", value.value_group, VALUE_GROUPS)
        errors.one_of("scales", value.scales, (None, torch.float16, torch.float32))
        errors.whole("seed", value.seed, 0, 2**32 - 1)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}.{error} in {given!r}") from error


def prompts(name: str, lengths: Sequence[int]) -> None:
    """Refuse lengths of prompts below 1, or none."""
    if not lengths:
        raise ValueError(f"{name} must have at least 1 length, got {lengths!r}")
    for length in lengths:
        try:
            errors.whole(name, length, 1)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{error} in {lengths!r}") from error


def cache(keys: Tensor, values: Tensor) -> None:
    """Refuse keys and values that are not finite, of one type and of one shape."""
    for name, tensor in (("keys", keys), ("values", values)):
        errors.floating(name, tensor, 3)
        errors.finite(name, tensor)
    if keys.shape[-3] == 0 or keys.shape[-1] == 0:
        raise ValueError(f"keys must have a head and a channel, got shape {tuple(keys.shape)}")
    errors.shaped("values", values, keys.shape)
    if values.dtype != keys.dtype:
        raise TypeError(f"values must be a {keys.dtype} tensor, got {_kind(values)}")


def joins(keys: Tensor, stored: Tensor) -> None:
    """Refuse new keys of another type or shape than the ones stored."""
    if keys.dtype != stored.dtype:
        raise TypeError(f"keys must be a {stored.dtype} tensor, got {_kind(keys)}")
    errors.shaped("keys", keys, (*stored.shape[:-2], keys.shape[-2], stored.shape[-1]))


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"{type(value).__name__}"
