"""What a function refuses, said in one voice: the argument, its value, the admissible range.

Shapes, types and scalars are always checked. Checks that must look at a tensor's values are left
out while `torch.compile` traces, because a graph cannot branch on data.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor


def whole(name: str, value: int, low: int = 0, high: int | None = None) -> None:
    """Refuse what is not an integer in [low, high]."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < low or (high is not None and value > high):
        span = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise ValueError(f"{name} must be {span}, got {value}")


def fraction(name: str, value: float) -> None:
    """Refuse what is outside [0, 1]."""
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {value}")


def open_fraction(name: str, value: float) -> None:
    """Refuse what is outside (0, 1)."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be in (0, 1), got {value}")


def above_zero_to_one(name: str, value: float) -> None:
    """Refuse what is outside (0, 1]."""
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be in (0, 1], got {value}")


def positive(name: str, value: float) -> None:
    """Refuse what is not above 0."""
    if not value > 0:
        raise ValueError(f"{name} must be > 0, got {value}")


def non_negative(name: str, value: float) -> None:
    """Refuse what is below 0."""
    if not value >= 0:
        raise ValueError(f"{name} must be >= 0, got {value}")


def one_of(name: str, value: object, choices: Collection[object]) -> None:
    """Refuse what is not among `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def floating(name: str, tensor: Tensor, axes: int = 1) -> None:
    """Refuse what is not a floating-point tensor of at least `axes` axes."""
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        raise TypeError(f"{name} must be a floating-point tensor, got {_kind(tensor)}")
    _axes(name, tensor, axes)


def integral(name: str, tensor: Tensor, axes: int = 1) -> None:
    """Refuse what is not an int64 tensor of at least `axes` axes."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int64:
        raise TypeError(f"{name} must be an int64 tensor, got {_kind(tensor)}")
    _axes(name, tensor, axes)


def boolean(name: str, tensor: Tensor, shape: Sequence[int] | None = None) -> None:
    """Refuse what is not a boolean tensor, of exactly `shape` where one is given."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean tensor, got {_kind(tensor)}")
    if shape is not None:
        shaped(name, tensor, shape)


def shaped(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor that is not exactly of `shape`."""
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(f"{name} must have shape {tuple(shape)}, got {tuple(tensor.shape)}")


def instance(name: str, value: object, kind: type) -> None:
    """Refuse what is not a `kind`."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")


def grouped(queries: Tensor, keys: Tensor, causal: bool) -> None:
    """Refuse queries that cannot attend to the keys."""
    floating("queries", queries, 3)
    floating("keys", keys, 3)
    heads, count = queries.shape[-3:-1]
    shaped("queries", queries, (*keys.shape[:-3], heads, count, keys.shape[-1]))
    if keys.shape[-3] == 0 or heads % keys.shape[-3]:
        raise ValueError(
            f"queries must have a multiple of the {keys.shape[-3]} kv heads, got {heads} heads"
        )
    if causal and count > keys.shape[-2]:
        raise ValueError(f"queries must be at most {keys.shape[-2]} tokens, got {count}")
    finite("queries", queries)
    finite("keys", keys)


def cache(keys: Tensor, values: Tensor) -> None:
    """Refuse keys and values that are not finite, of one type and of one shape."""
    for name, tensor in (("keys", keys), ("values", values)):
        floating(name, tensor, 3)
        finite(name, tensor)
    shaped("values", values, keys.shape)
    if values.dtype != keys.dtype:
        raise TypeError(f"values must be a {keys.dtype} tensor, got {_kind(values)}")
    if keys.shape[-3] == 0 or keys.shape[-1] == 0:
        raise ValueError(f"keys must have a head and a channel, got shape {tuple(keys.shape)}")


def masks(expander: Tensor, dynamic: Tensor, kv_heads: int) -> None:
    """Refuse a static mask that does not fit the dynamic one and the heads."""
    boolean("dynamic", dynamic)
    _axes("dynamic", dynamic, 1)
    boolean("expander", expander)
    if expander.ndim != 2 or expander.shape[0] != dynamic.shape[-1]:
        raise ValueError(
            f"expander must have {dynamic.shape[-1]} tokens and an axis of channels, "
            f"got shape {tuple(expander.shape)}"
        )
    whole("kv_heads", kv_heads, 1)
    if expander.shape[1] % kv_heads:
        raise ValueError(f"kv_heads must divide {expander.shape[1]} channels, got {kv_heads}")


def span(keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor) -> None:
    """Refuse a cache that is not finite, and masks that do not fit it."""
    cache(keys, values)
    kv_heads, tokens, width = keys.shape[-3:]
    boolean("dynamic", dynamic, (*keys.shape[:-3], tokens))
    boolean("expander", expander, (tokens, kv_heads * width))


def arrival(queries: Tensor, keys: Tensor, values: Tensor) -> None:
    """Refuse new tokens whose queries, keys and values are not finite or do not fit each other."""
    grouped(queries, keys, True)
    cache(keys, values)
    shaped("queries", queries, (*queries.shape[:-2], *keys.shape[-2:]))


def joins(keys: Tensor, stored: Tensor) -> None:
    """Refuse new keys of another type or shape than the ones stored."""
    if keys.dtype != stored.dtype:
        raise TypeError(f"keys must be a {stored.dtype} tensor, got {_kind(keys)}")
    shaped("keys", keys, (*stored.shape[:-2], keys.shape[-2], stored.shape[-1]))


def entries(name: str, kept: Tensor, stored: Tensor) -> None:
    """Refuse a mask that keeps another number of entries than are stored."""
    count = int(kept.sum())
    if count != stored.numel():
        raise ValueError(f"{name} must keep the {stored.numel()} entries stored, got {count}")


def codes(name: str, tensor: Tensor, high: int = 255) -> None:
    """Refuse what is not a uint8 tensor, or holds a number above `high`."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.uint8:
        raise TypeError(f"{name} must be a uint8 tensor, got {_kind(tensor)}")
    _axes(name, tensor, 1)
    if not torch.compiler.is_compiling() and bool((tensor > high).any()):
        raise ValueError(f"{name} must be in [0, {high}], got {_first(tensor, tensor > high)}")


def words(name: str, tensor: Tensor, count: int) -> None:
    """Refuse what is not an int32 tensor of `count` words a row."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int32:
        raise TypeError(f"{name} must be an int32 tensor, got {_kind(tensor)}")
    _axes(name, tensor, 1)
    shaped(name, tensor, (*tensor.shape[:-1], count))


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


def edges(name: str, pairs: Tensor, channels: int) -> None:
    """Refuse what is not an int64 matrix of channels, one row a token."""
    whole("channels", channels, 1)
    integral(name, pairs, 2)
    if pairs.ndim != 2:
        raise ValueError(f"{name} must have 2 axes, got shape {tuple(pairs.shape)}")
    bad = (pairs < 0) | (pairs >= channels)
    if bool(bad.any()):
        raise ValueError(f"{name} must be in [0, {channels - 1}], got {_first(pairs, bad)}")


def multiple(name: str, value: int, of: str, unit: int) -> None:
    """Refuse what is not a multiple of another argument."""
    if value % unit:
        raise ValueError(f"{name} must be a multiple of {of} = {unit}, got {value}")


def biregular(tokens: int, channels: int, token_degree: int, near: bool) -> None:
    """Refuse sizes and degrees that no biregular graph has, or, if `near`, no graph at all."""
    whole("tokens", tokens, 1)
    whole("channels", channels, 1)
    whole("token_degree", token_degree, 0 if near else 3, channels)
    if not near:
        channel_degree, rest = divmod(tokens * token_degree, channels)
        if rest or channel_degree < 3:
            raise ValueError(
                f"token_degree must give {channels} channels one whole degree of at least 3 "
                f"from {tokens} tokens, got {token_degree}"
            )


def matrix(name: str, mask: Tensor) -> None:
    """Refuse what is not a boolean matrix."""
    boolean(name, mask)
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
    boolean(name, members, (vertices,))
    if not bool(members.any()):
        raise ValueError(f"{name} must have a member, got none")


def no_nan(name: str, scores: Tensor) -> None:
    """Refuse NaN and plus infinity: minus infinity marks an evicted token and may stay."""
    if torch.compiler.is_compiling():
        return
    if not bool((scores < torch.inf).all()):
        raise ValueError(
            f"{name} must be < inf and not NaN, got {_first(scores, ~(scores < torch.inf))}"
        )


def finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and both infinities."""
    if torch.compiler.is_compiling():
        return
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} must be finite, got {_first(tensor, ~torch.isfinite(tensor))}")


def importance(name: str, scores: Tensor) -> None:
    """Refuse scores that are not floating point, not finite, or negative."""
    floating(name, scores)
    if torch.compiler.is_compiling():
        return
    fine = (scores >= 0) & (scores < torch.inf)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be finite and >= 0, got {_first(scores, ~fine)}")


def _axes(name: str, tensor: Tensor, axes: int) -> None:
    if tensor.ndim < axes:
        raise ValueError(f"{name} must have at least {axes} axes, got shape {tuple(tensor.shape)}")


def _kind(value: object) -> str:
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else f"{type(value).__name__}"


def _first(tensor: Tensor, bad: Tensor) -> float:
    return tensor[bad][0].item()
