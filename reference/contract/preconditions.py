"""Conditions on several arguments together; parameters are named as in the signatures."""

from math import prod
from typing import Any

import torch
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import any_true, ends, may_read_values

AXES = {"head": 1, "layer": 2, "model": 3}
"""Number of last axes that share a budget; "model" also includes the first axis."""


def grouped(query_heads: int, kv_heads: int) -> None:
    """Refuse a number of query heads that is no multiple of the number of key heads."""
    multiple("queries", query_heads, kv_heads)


def multiple(name: str, heads: int, kv_heads: int, least: int = 0) -> None:
    """Refuse a number of heads that is no multiple of `kv_heads`, or is below `least`."""
    if heads < least or (heads % kv_heads if kv_heads else heads):
        limit = f", and at least {least}" if least else ""
        said = f"the heads of {name} must be a multiple of the {kv_heads} of keys{limit}"
        raise ValueError(f"{said}, got {heads}")


def wide(width: int) -> None:
    """Refuse queries and keys of width 0."""
    if not width:
        raise ValueError("queries and keys must have a width of at least 1, got 0")


def aligned(queries: Tensor, tokens: int, causal: bool | None) -> None:
    """Refuse more queries than tokens, unless `causal` is False."""
    if causal is not False and queries.shape[-2] > tokens:
        raise ValueError(
            f"causal queries must be at most as many as the {tokens} tokens, "
            f"got {queries.shape[-2]}"
        )


def finite_log_sum_exp(
    queries: Tensor, keys: Tensor, log_sum_exp: Tensor | None, valid: Tensor | None
) -> None:
    """Refuse a log-sum-exp that is not finite, unless it is not read: at padding, without keys."""
    count, tokens = queries.shape[-2], keys.shape[-2]
    if log_sum_exp is None or not tokens or not may_read_values(log_sum_exp):
        return
    real = log_sum_exp.new_ones(count, dtype=torch.bool)
    real = (real if valid is None else valid[..., None, tokens - count :]).expand_as(log_sum_exp)
    if len(endless := log_sum_exp[real & ~log_sum_exp.isfinite()]):
        raise ValueError(f"log_sum_exp must be finite but at padding, got {endless[0].item()}")


def scoped(scores: Tensor, scope: str) -> None:
    """Refuse scores that lack an axis of the scope."""
    if scores.ndim < AXES[scope]:
        raise ValueError(
            f"scores must have at least {AXES[scope]} axes where scope is {scope!r}, "
            f"got shape {tuple(scores.shape)}"
        )


def budget(scores: Tensor, keep: int | Tensor | None, ratio: float | None, scope: str) -> None:
    """Refuse both or neither of `keep` and `ratio`, and a `keep` larger than its pool."""
    shape = tuple(scores.shape)
    if scope == "model":
        shape = (*shape[1:-2], shape[0], *shape[-2:])
    budget_fits_pools(keep, ratio, prod(shape[-AXES[scope] :]), shape[: -AXES[scope]])


def budget_fits_pools(
    keep: int | Tensor | None, ratio: float | None, pool: int, pools: tuple[int, ...]
) -> None:
    """Refuse both or neither of `keep` and `ratio`, and a `keep` that does not fit `pools`."""
    if (keep is None) == (ratio is None):
        raise ValueError(
            f"exactly one of keep and ratio must be given, got keep={keep}, ratio={ratio}"
        )
    if isinstance(keep, Tensor):
        checks.shaped("keep", keep, pools)
        low, high = ends(keep) if may_read_values(keep) else (0, 0)
    else:
        low = high = keep or 0
    nonnegative_at_most("keep", low if low < 0 else high, pool)


def left_padded(valid: Tensor | None) -> None:
    """Refuse padding that is not on the left of a row."""
    false_on_the_left("valid", valid)


def false_on_the_left(name: str, mask: Tensor | None) -> None:
    """Refuse a mask with a false after a true."""
    if mask is None or not may_read_values(mask):
        return
    gaps = mask[..., :-1] & ~mask[..., 1:]
    if any_true(gaps):
        raise ValueError(
            f"{name} must be false on the left of a row only, got false after true at position "
            f"{int(gaps.nonzero()[0, -1]) + 1}"
        )


def queries_cover_window(queries: Tensor, window: int | None, tokens: int) -> None:
    """Refuse fewer queries than the window (1 by default), or than a shorter sequence."""
    least = min(1 if window is None else window, tokens)
    if queries.shape[-2] < least:
        of = "" if window is None else " of the window"
        raise ValueError(f"queries must be at least the last {least}{of}, got {queries.shape[-2]}")


def windowed(keep: int, window: int) -> None:
    """Refuse a budget smaller than the protected window."""
    covers(keep, window)


def covers(keep: int, protected: int, heads: int = 1) -> None:
    """Refuse a budget, a mean over `heads`, smaller than the protected entries of its pool."""
    if keep * heads < protected:
        least = -(-protected // heads)
        raise ValueError(
            f"keep must be >= {least} to hold the {protected} protected entries of a pool, "
            f"got {keep}"
        )


def affordable(keep: int, tokens: int) -> None:
    """Refuse a budget larger than the number of tokens."""
    nonnegative_at_most("keep", keep, tokens)


def nonnegative_at_most(name: str, value: float, most: float) -> None:
    """Refuse a number below 0 or above `most`."""
    if not 0 <= value <= most:
        raise ValueError(f"{name} must be in [0, {most}], got {value}")


def divides(name: str, part: int, of: str, whole: int) -> None:
    """Refuse a number that does not divide another one, named `of`."""
    if whole % part:
        raise ValueError(f"{name} must divide {of} = {whole}, got {part}")


def multiple_of(name: str, whole: int, of: str, part: int) -> None:
    """Refuse a number that is no multiple of another one, named `of`."""
    if whole % part:
        raise ValueError(f"{name} must be a multiple of {of} = {part}, got {whole}")


def indexing(name: str, places: Tensor, count: int) -> None:
    """Refuse indices outside `count` elements."""
    if may_read_values(places):
        low, high = ends(places)
        nonnegative_at_most(name, low if low < 0 else high, count - 1)


def permuting(permutations: Tensor) -> None:
    """Refuse a tensor whose last axis holds no permutations."""
    places = torch.arange(permutations.shape[-1], device=permutations.device)
    if not len(places) or (
        may_read_values(permutations) and bool((permutations.sort(-1).values != places).any())
    ):
        raise ValueError(
            "permutations must be permutations along the last axis, "
            f"got shape {tuple(permutations.shape)}"
        )


def keys_have_heads_and_channels(keys: Tensor) -> None:
    """Refuse a cache without a head or without a channel."""
    has_heads_and_channels("keys", keys)


def has_heads_and_channels(name: str, tensor: Tensor) -> None:
    """Refuse a tensor without a head or without a channel."""
    if not tensor.shape[-3] or not tensor.shape[-1]:
        raise ValueError(f"{name} must have a head and a channel, got shape {tuple(tensor.shape)}")


def same_dtype(keys: Tensor, values: Tensor) -> None:
    """Refuse values of another dtype than the keys."""
    checks.typed("values", values, keys.dtype)


def dtype_of_cache(cache: Any, keys: Tensor) -> None:
    """Refuse keys of another dtype than the cache's."""
    checks.typed("keys", keys, cache.residual_keys.dtype)
