"""What the functions on caches refuse, in the voice of `reference.errors`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reference import attention_errors, errors
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
        value_group("value_group", value.value_group)
        errors.one_of("scales", value.scales, (None, torch.float16, torch.float32))
        errors.whole("seed", value.seed, 0, 2**32 - 1)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}.{error} in {given!r}") from error


def value_group(name: str, value: str) -> None:
    """Refuse what is no way to group values."""
    errors.one_of(name, value, VALUE_GROUPS)


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


def masks(expander: Tensor, dynamic: Tensor, kv_heads: int) -> None:
    """Refuse a static mask that does not fit the dynamic one and the heads."""
    errors.boolean("dynamic", dynamic)
    errors.boolean("expander", expander)
    if expander.ndim != 2 or expander.shape[0] != dynamic.shape[-1]:
        raise ValueError(
            f"expander must have {dynamic.shape[-1]} tokens and an axis of channels, "
            f"got shape {tuple(expander.shape)}"
        )
    errors.whole("kv_heads", kv_heads, 1)
    if expander.shape[1] % kv_heads:
        raise ValueError(f"kv_heads must divide {expander.shape[1]} channels, got {kv_heads}")


def span(keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor) -> None:
    """Refuse a cache that is not finite, and masks that do not fit it."""
    cache(keys, values)
    kv_heads, tokens, width = keys.shape[-3:]
    errors.boolean("dynamic", dynamic, (*keys.shape[:-3], tokens))
    errors.boolean("expander", expander, (tokens, kv_heads * width))


def arrival(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Refuse new tokens whose queries, keys and values are not finite or do not fit each other."""
    attention_errors.attendable(queries, keys, True)
    cache(keys, values)
    errors.shaped("queries", queries, (*queries.shape[:-2], *keys.shape[-2:]))


def joins(keys: Tensor, stored: Tensor) -> None:
    """Refuse new keys of another type or shape than the ones stored."""
    if keys.dtype != stored.dtype:
        raise TypeError(f"keys must be a {stored.dtype} tensor, got {_kind(keys)}")
    errors.shaped("keys", keys, (*stored.shape[:-2], keys.shape[-2], stored.shape[-1]))


def entries(name: str, kept: Tensor, stored: Tensor) -> None:
    """Refuse a mask that keeps another number of entries than are stored."""
    count = int(kept.sum())
    if count != stored.numel():
        raise ValueError(f"{name} must keep the {stored.numel()} entries stored, got {count}")


def codes(name: str, tensor: Tensor, high: int = 255) -> None:
    """Refuse what is not a uint8 tensor, or holds a number above `high`."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.uint8:
        raise TypeError(f"{name} must be a uint8 tensor, got {_kind(tensor)}")
    if tensor.ndim == 0:
        raise ValueError(f"{name} must have at least 1 axis, got shape ()")
    if not torch.compiler.is_compiling() and bool((tensor > high).any()):
        raise ValueError(f"{name} must be in [0, {high}], got {_first(tensor, tensor > high)}")


def words(name: str, tensor: Tensor, count: int) -> None:
    """Refuse what is not an int32 tensor of `count` words a row."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int32:
        raise TypeError(f"{name} must be an int32 tensor, got {_kind(tensor)}")
    if tensor.ndim == 0:
        raise ValueError(f"{name} must have at least 1 axis, got shape ()")
    errors.shaped(name, tensor, (*tensor.shape[:-1], count))


def storable(name: str, scales: Tensor, dtype: torch.dtype) -> None:
    """Refuse minima and steps that overflow the precision they are stored in."""
    if torch.compiler.is_compiling():
        return
    fine = torch.isfinite(scales.to(dtype))
    if not bool(fine.all()):
        raise ValueError(
            f"{name} must have minima and steps within {torch.finfo(dtype).max} to be stored as "
            f"{dtype}, got {_first(scales, ~fine)}"
        )


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"{type(value).__name__}"


def _first(tensor: Tensor, bad: Tensor) -> float:
    return tensor[bad][0].item()
