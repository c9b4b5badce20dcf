"""The papers' own compressors: `compress` with their defaults."""

from warnings import warn

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector.compress import compress, pool_budgets, pool_sizes, rows_of
from optimized.vector.graphkv.graph import neighbour_count
from optimized.vector.retain import AXES
from reference import compress_errors as refuse
from reference import errors, selection_errors
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.hubkv.refine import HubSettings
from reference.scorers.scored import Scored


def hubkv_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: float | None = None,
    scope: str = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: int = 4,
    recent: int | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    refuse.only("refinement", refinement, HubSettings)
    refuse.compression(keys, values, scored, scope, refinement, valid, store, None)
    errors.whole("sinks", sinks)
    if recent is not None:
        errors.whole("recent", recent)
    rows = rows_of(scored.scores, scored.protected, {}, scope, valid)
    length, pools = rows.scores.shape[-1], rows.protected.flatten(-AXES[scope])
    between = [1] * (rows.scores.ndim - rows.real.ndim)
    first = (length - rows.real).view(*rows.real.shape, *between)
    place = torch.arange(length, device=keys.device)
    window = rows.real // 50 if recent is None else rows.real.clamp(max=recent)
    ends = length - window.view(first.shape)
    others = (rows.protected | (place < first + sinks)) & (place >= first) & (place < ends)
    left = window
    if store is None:
        selection_errors.budget(keep, ratio, pools.shape[-1], pools.shape[:-1])
        budgets = pool_budgets(keep, ratio, pool_sizes(rows, scope))
        spare = budgets - others.flatten(-AXES[scope]).sum(-1)
        spare = spare.div(pools.shape[-1] // max(1, length) or 1, rounding_mode="floor")
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
    return compress(
        keys,
        values,
        scored._replace(protected=protected),
        keep=keep,
        ratio=ratio,
        scope=scope,
        refinement=refinement,
        valid=valid,
        store=store,
    )


def graphkv_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Int64[Tensor, " layers"] | None = None,
    ratio: float | None = None,
    length: int | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    refuse.only("refinement", refinement, GraphSettings)
    refuse.compression(keys, values, scored, "head", refinement, valid, store, queries)
    if length is None:
        refinement = refinement._replace(adaptive=True)
    else:
        count = neighbour_count(refinement.count, length)
        refinement = refinement._replace(count=count, adaptive=False)
    if isinstance(keep, Tensor):
        refuse.layer_budgets("keep", keep, scored.scores)
        pools = scored.scores.shape[: -2 if store is not None else -1]
        keep = keep.view(-1, *[1] * (len(pools) - 1)).expand(pools)
    protected = scored.protected
    if not refinement.per_head:
        protected = protected.any(-2, keepdim=True).expand(protected.shape)
    return compress(
        keys,
        values,
        Scored(scored.scores, protected),
        keep=keep,
        ratio=ratio,
        refinement=refinement,
        queries=queries,
        valid=valid,
        store=store,
    )
