"""What the functions on caches refuse, in the voice of `reference.errors`."""

from collections.abc import Sequence

from torch import Tensor

from reference import errors


def instance(name: str, value: object, kind: type) -> None:
    """Refuse what is not a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")


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
