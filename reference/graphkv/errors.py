"""What GraphKV's functions refuse, in the voice of `reference.errors`."""

from collections.abc import Sequence

import torch
from torch import Tensor

from reference import errors


def content_count(name: str, count: int, tokens: int, protected: Tensor | None) -> None:
    """Refuse a count that is no integer or above the content tokens of any row."""
    if protected is not None and protected.numel() and not torch.compiler.is_compiling():
        tokens = int((~protected).sum(-1).min())
    errors.whole(name, count, 0, tokens)


def grouped(name: str, tensor: Tensor, shape: Sequence[int]) -> None:
    """Refuse a tensor that is not of `shape`, give or take whole groups on the heads' axis -3."""
    got, shape = tuple(tensor.shape), tuple(shape)
    if got == shape:
        return
    alike = len(got) == len(shape) > 2 and got[:-3] + got[-2:] == shape[:-3] + shape[-2:]
    if not (alike and got[-3] > 0 and shape[-3] > 0 and got[-3] % shape[-3] == 0):
        raise ValueError(
            f"{name} must have shape {shape} or a multiple of its heads on axis -3, got {got}"
        )


def compared(kind: str, keys: Tensor, queries: Tensor | None, values: Tensor | None) -> None:
    """Refuse a kind of similarity, or vectors, that cannot be compared."""
    errors.floating("keys", keys, 2)
    errors.finite("keys", keys)
    errors.one_of("kind", kind, ("kk", "qk", "qq", "kv", "vv"))
    if "q" in kind:
        errors.given("queries", queries, f"where kind is {kind!r}")
    if "v" in kind:
        errors.given("values", values, f"where kind is {kind!r}")
    if queries is not None:
        errors.floating("queries", queries, 2)
        grouped("queries", queries, keys.shape)
        errors.finite("queries", queries)
    if values is not None:
        errors.floating("values", values, 2)
        errors.shaped("values", values, keys.shape)
        errors.finite("values", values)


def line(name: str, tensor: Tensor) -> None:
    """Refuse what is not an int64 tensor of one axis."""
    errors.integral(name, tensor)
    if tensor.ndim != 1:
        raise ValueError(f"{name} must have one axis, got shape {tuple(tensor.shape)}")


def propagation(scores: Tensor, weights: Tensor | None, neighbours: Tensor, rounds: int) -> None:
    """Refuse scores, a graph or a number of rounds that no signal can travel along."""
    errors.importance("scores", scores)
    errors.boolean("neighbours", neighbours)
    sources = neighbours.shape[-2] if neighbours.ndim > 1 else 0
    errors.shaped("neighbours", neighbours, (*scores.shape[:-1], sources, scores.shape[-1]))
    if weights is not None:
        errors.floating("weights", weights, 2)
        errors.shaped("weights", weights, neighbours.shape)
        errors.finite("weights", weights)
    errors.whole("rounds", rounds)


def window(keep: int, protected: Tensor) -> None:
    """Refuse a budget that the protected tokens of some row exceed."""
    if torch.compiler.is_compiling() or not protected.numel():
        return
    errors.whole("keep", keep, int(protected.sum(-1).max()))
