"""The papers' own compressors: `select` and `compress` with their defaults."""

from typing import Any
from warnings import warn

import torch
from torch import Tensor

from optimized.vector.compress import compress, pool_budgets, pool_sizes, rows_of, select
from optimized.vector.evict import evict
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.compress import of_layers
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.hubkv.refine import HubSettings
from reference.rules import AXES
from reference.scorers.scored import Scored


def hubkv_select(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    scope: str = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: int = 4,
    recent: int | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    rows = rows_of(keys, values, scored, scope, refinement, None, valid)
    length, pool = rows.scores.shape[-1], rows.scores.shape[-AXES[scope] :].numel()
    between = [1] * (rows.scores.ndim - rows.real.ndim)
    first = (length - rows.real).view(*rows.real.shape, *between)
    place = torch.arange(length, device=keys.device)
    window = left = rows.real // 50 if recent is None else rows.real.clamp(max=recent)
    ends = length - window.view(first.shape)
    others = (rows.protected | (place < first + sinks)) & (place >= first) & (place < ends)
    spare = pool_budgets(keep, ratio, pool_sizes(rows, scope))
    spare = spare - others.flatten(-AXES[scope]).sum(-1)
    spare = spare.div(pool // max(1, length) or 1, rounding_mode="floor")
    if scope == "head" and spare.shape[-1]:
        spare = spare.amin(-1)
    if rows.scores.numel():
        left = torch.minimum(window, spare.clamp(min=0))
    protected = others | (place >= length - left.view(first.shape))
    clipped = int((window - left).amax()) if window.numel() else 0
    if clipped:
        warn(
            f"recent window clipped by {clipped} tokens: the budget holds no more beside the other "
            "protected ones",
            stacklevel=2,
        )
    if scope == "model":
        protected = protected.movedim(-3, 0)
    how: dict[str, Any] = dict(keep=keep, ratio=ratio, scope=scope, refinement=refinement)
    return select(keys, values, Scored(scored.scores, protected), **how, valid=valid)


def hubkv_compress(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    scope: str = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: int = 4,
    recent: int | None = None,
    valid: Tensor | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    how: dict[str, Any] = dict(keep=keep, ratio=ratio, scope=scope, refinement=refinement)
    how |= dict(valid=valid)
    if store is None:
        kept = hubkv_select(keys, values, scored, **how, sinks=sinks, recent=recent)
        return evict(keys, values, kept)
    scores, tokens = scored.scores, keys.shape[-2]
    real = scores.new_ones(scores.shape[-1:], dtype=torch.bool) if valid is None else valid
    count = real.sum(-1, keepdim=True)
    place = torch.arange(tokens, device=keys.device)
    window = count // 50 if recent is None else recent
    ends = real & ((place < tokens - count + sinks) | (place >= tokens - window))
    protected = scored.protected | ends[..., None, :]
    return compress(keys, values, Scored(scores, protected), **how, store=store)


def graphkv_select(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    length: int | None = None,
    queries: Tensor | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    how = of_layers(scored, refinement, keep, length, scored.scores.shape[:-1])
    return select(keys, values, **how, ratio=ratio, queries=queries, valid=valid)


def graphkv_compress(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    length: int | None = None,
    queries: Tensor | None = None,
    valid: Tensor | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    beside: dict[str, Any] = dict(ratio=ratio, queries=queries, valid=valid)
    if store is None:
        beside |= dict(keep=keep, length=length)
        return evict(keys, values, graphkv_select(keys, values, scored, refinement, **beside))
    how = of_layers(scored, refinement, keep, length, scored.scores.shape[:-2])
    return compress(keys, values, **how, **beside, store=store)
