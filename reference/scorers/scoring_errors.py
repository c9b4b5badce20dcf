"""What scorers refuse that estimate or learn attention, in the voice of `reference.errors`."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from reference import errors


def non_negative_finite(name: str, value: float) -> None:
    """Refuse what is below 0, and infinity."""
    errors.number(name, value)
    if not 0 <= value < math.inf:
        raise ValueError(f"{name} must be finite and >= 0, got {value}")


def leads_to(name: str, value: float, result: Tensor) -> None:
    """Refuse a number that leads to a `result`, at least 0, that its dtype cannot hold."""
    if torch.compiler.is_compiling() or not result.numel():
        return
    if not bool(torch.isfinite(result.amax())):
        raise ValueError(
            f"{name} must be in the range where results are finite in {result.dtype}, got {value}"
        )


def kind(name: str, value: object, of: type) -> None:
    """Refuse what is not an instance of a class."""
    if not isinstance(value, of):
        raise TypeError(f"{name} must be a {of.__name__}, got {value!r}")


def starts(name: str, value: int | Tensor) -> None:
    """Refuse what is neither a position nor an int64 tensor of positions."""
    if not isinstance(value, Tensor):
        errors.whole(name, value)
        return
    errors.integral(name, value, 0)
    if not torch.compiler.is_compiling() and bool((value < 0).any()):
        raise ValueError(f"{name} must be >= 0, got {int(value.min())}")


def moments(name: str, statistics: tuple[Tensor, ...], heads: Sequence[int], width: int) -> None:
    """Refuse counts, means and covariances that are not those of `heads` (batch axes included)."""
    counts, skipped, mean, covariance = statistics
    for part, tensor in (("counted", counts), ("skipped", skipped)):
        errors.integral(f"{name}.{part}", tensor, 0)
        errors.shaped(f"{name}.{part}", tensor, heads[:-1])
    for part, tensor, shape in (
        ("mean", mean, (*heads, width)),
        ("covariance", covariance, (*heads, width, width)),
    ):
        errors.floating(f"{name}.{part}", tensor, 1)
        errors.shaped(f"{name}.{part}", tensor, shape)
        errors.finite(f"{name}.{part}", tensor)


def continues(valid: Tensor, skipped: Tensor, counts: Tensor) -> None:
    """Refuse padding after a row's first token."""
    if torch.compiler.is_compiling() or not valid.numel():
        return
    bad = (skipped + counts > 0) & ~valid[..., 0]
    if bool(bad.any()):
        raise ValueError("valid must be true after a row's first token, got false at position 0")


def cached(keys: Tensor, values: Tensor) -> None:
    """Refuse keys and values that are not finite or not of one shape with a width."""
    for name, tensor in (("keys", keys), ("values", values)):
        errors.floating(name, tensor, 3)
        errors.finite(name, tensor)
    if keys.shape[-1] == 0:
        raise ValueError(f"keys must have a width of at least 1, got {keys.shape[-1]}")
    errors.shaped("values", values, keys.shape)


def group(name: str, heads: int, kv_heads: int) -> None:
    """Refuse query heads that are no multiple of the key heads."""
    if heads % kv_heads if kv_heads else heads:
        raise ValueError(
            f"{name} must be of a multiple of the {kv_heads} heads of keys, got {heads}"
        )


def turning(name: str, rotation: Tensor, batch: Sequence[int], width: int) -> None:
    """Refuse what is not one finite matrix, or one a batch row."""
    errors.floating(name, rotation, 2)
    if rotation.ndim > 2:
        errors.shaped(name, rotation, (*batch, width, width))
    else:
        errors.shaped(name, rotation, (width, width))
    errors.finite(name, rotation)


def context(keys: Tensor) -> None:
    """Refuse keys of a context that are not finite or have no width."""
    errors.floating("keys", keys, 3)
    errors.finite("keys", keys)
    if keys.shape[-1] == 0:
        raise ValueError(f"keys must have a width of at least 1, got {keys.shape[-1]}")


def repetition(queries: Tensor, repeat_keys: Tensor, keys: Tensor, which: str = "") -> None:
    """Refuse queries and keys of a repetition that do not fit each other and the context."""
    names = (f"queries{which}", f"repeat_keys{which}")
    for name, tensor in zip(names, (queries, repeat_keys), strict=True):
        errors.floating(name, tensor, 3)
        errors.finite(name, tensor)
    *batch, kv_heads, _, width = keys.shape
    errors.shaped(names[0], queries, (*batch, *queries.shape[-3:-1], width))
    group(f"the heads of {names[0]}", queries.shape[-3], kv_heads)
    errors.shaped(names[1], repeat_keys, (*batch, kv_heads, repeat_keys.shape[-2], width))
    if queries.shape[-2] > repeat_keys.shape[-2]:
        raise ValueError(
            f"{names[0]} must be at most as many as the {repeat_keys.shape[-2]} tokens of "
            f"{names[1]}, got {queries.shape[-2]}"
        )


def repeat_padding(valid: Tensor, shape: Sequence[int]) -> None:
    """Refuse what is not a mask of repeat inputs that are padded on the left, if at all."""
    errors.boolean("repeat_valid", valid, shape)
    if torch.compiler.is_compiling():
        return
    if bool((valid[..., :-1] & ~valid[..., 1:]).any()):
        raise ValueError(
            "repeat_valid must be false on the left of a row only, got false after true"
        )


def each_chunk(name: str, tensors: object, chunks: int) -> None:
    """Refuse what is not a tuple with one tensor for each chunk."""
    if not isinstance(tensors, tuple):
        raise TypeError(f"{name} must be a tuple, got {tensors!r}")
    if len(tensors) != chunks:
        got = tensors if not tensors else len(tensors)
        raise ValueError(f"{name} must have {chunks} entries, one for each chunk, got {got}")


def shares(name: str, tensor: Tensor, shape: Sequence[int] | None = None) -> None:
    """Refuse what is not a floating-point tensor of numbers in [0, 1]."""
    errors.floating(name, tensor, 2)
    if shape is not None:
        errors.shaped(name, tensor, shape)
    if torch.compiler.is_compiling():
        return
    fine = (tensor >= 0) & (tensor <= 1)
    if not bool(fine.all()):
        raise ValueError(f"{name} must be in [0, 1], got {tensor[~fine][0].item()}")


def gate_weights(name: str, weights: tuple[Tensor, ...], hidden: int) -> None:
    """Refuse weights of a gate that are not finite or do not fit each other or the hidden width."""
    query, _, _, _, _, learned, _ = weights
    errors.floating(f"{name}.query", query, 4)
    errors.floating(f"{name}.learned", learned, 3)
    kv_heads, groups, dim = query.shape[:3]
    if not groups or not dim:
        raise ValueError(
            f"{name}.query must have a group and a dim of at least 1, got {(groups, dim)}"
        )
    fitting = (
        ("query", (kv_heads, groups, dim, hidden)),
        ("query_bias", (kv_heads, groups, dim)),
        ("query_scale", (dim,)),
        ("key", (kv_heads, dim, hidden)),
        ("key_scale", (dim,)),
        ("learned", (kv_heads, learned.shape[1], dim)),
        ("bias", (kv_heads, groups)),
    )
    for (part, shape), tensor in zip(fitting, weights, strict=True):
        errors.floating(f"{name}.{part}", tensor, 1)
        errors.shaped(f"{name}.{part}", tensor, shape)
        errors.finite(f"{name}.{part}", tensor)
