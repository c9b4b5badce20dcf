"""Whole compressors, all rows at once."""

from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector.evict import evict
from optimized.vector.hex.cache import hex_store
from optimized.vector.refinement import refine_rows
from optimized.vector.retain import AXES, kept_count, retain
from reference import compress_errors as refuse
from reference import selection_errors
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache, span_length
from reference.hex.presets import HexConfig
from reference.hubkv.locality import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.scorers.scored import Scored

Refinement = HubSettings | GraphSettings | NmsSettings | None


class Rows(NamedTuple):
    """What is ranked, rows before layers before heads, nothing in the padding."""

    scores: Tensor
    protected: Tensor
    vectors: dict[str, Tensor]
    padding: Tensor | None
    real: Tensor  # tokens of each row that are no padding


def compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: float | None = None,
    scope: str = "head",
    refinement: HubSettings | GraphSettings | NmsSettings | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    refuse.compression(keys, values, scored, scope, refinement, valid, store, queries)
    vectors = compared(refinement, keys, values, queries)
    rows = rows_of(widen(scored.scores), scored.protected, vectors, scope, valid)
    if store is not None:
        marked = _marked(rows, keep, ratio, refinement, store)
        marked = marked.movedim(-2, 0) if scope == "model" else marked
        real = keys.new_ones(keys.shape[-2], dtype=torch.bool) if valid is None else valid
        return hex_store(keys, values, scored.scores, marked, real, store)
    kept = _kept(rows, keep, ratio, scope, refinement)
    return evict(keys, values, kept.movedim(-3, 0) if scope == "model" else kept)


def compared(
    refinement: Refinement, keys: Tensor, values: Tensor, queries: Tensor | None
) -> dict[str, Tensor]:
    """Return the vectors that a refinement compares."""
    if not isinstance(refinement, GraphSettings):
        return {}
    vectors = {"keys": keys}
    if "q" in refinement.kind and queries is not None:
        vectors["queries"] = queries
    if "v" in refinement.kind:
        vectors["values"] = values
    return vectors


def rows_of(
    scores: Tensor,
    protected: Tensor,
    vectors: dict[str, Tensor],
    scope: str,
    valid: Tensor | None,
) -> Rows:
    """Lay out the rows, and blank their padding."""
    if scope == "model":
        scores, protected = scores.movedim(0, -3), protected.movedim(0, -3)
        vectors = {name: x.movedim(0, -4) for name, x in vectors.items()}
    if valid is None:
        rows = scores.shape[: -3 if scope == "model" else -2]
        real = torch.full(rows, scores.shape[-1], device=scores.device)
        return Rows(scores, protected, vectors, None, real)
    padding = ~across(valid, scores)
    return Rows(
        scores.masked_fill(padding, 0),
        protected & ~padding,
        {
            name: x.masked_fill(~across(valid, x[..., 0])[..., None], 0)
            for name, x in vectors.items()
        },
        padding,
        valid.sum(-1),
    )


def across(valid: Tensor, like: Tensor) -> Tensor:
    """Spread a mask of rows and tokens over what stands between them."""
    *rows, tokens = valid.shape
    return valid.reshape(*rows, *[1] * (like.ndim - valid.ndim), tokens).expand(like.shape)


def pool_budgets(keep: int | Tensor | None, ratio: float | None, sizes: Tensor) -> Tensor:
    """Return the budget of each pool of so many real entries."""
    if ratio is None:
        assert keep is not None
        return torch.minimum(torch.as_tensor(keep, device=sizes.device), sizes)
    lengths, which = sizes.unique(return_inverse=True)
    counts = [kept_count(length, ratio) for length in lengths.tolist()]
    return torch.tensor(counts, dtype=torch.int64, device=sizes.device)[which]


def pool_sizes(rows: Rows, scope: str) -> Tensor:
    """Return how many real entries compete in each pool."""
    if scope == "head":
        return rows.real[..., None].expand(rows.scores.shape[:-1])
    return rows.real * rows.scores.shape[-AXES[scope] : -1].numel()


def ranked(refined: Tensor, padding: Tensor | None) -> Tensor:
    """Put padding behind everything else, also behind what a signal evicted."""
    if padding is None:
        return refined
    return refined.clamp(min=torch.finfo(refined.dtype).min).masked_fill(padding, -torch.inf)


def select(scores: Tensor, protected: Tensor, budgets: Tensor, scope: str) -> Tensor:
    """Keep each pool's budget; rows come first in every scope."""
    if scope == "head":
        return retain(scores, protected, keep=budgets)
    pools, shields = (x.flatten(-AXES[scope]).unsqueeze(-2) for x in (scores, protected))
    return retain(pools, shields, keep=budgets, scope="layer").view(scores.shape)


def _kept(
    rows: Rows, keep: int | Tensor | None, ratio: float | None, scope: str, refinement: Refinement
) -> Tensor:
    pools, shields = rows.scores.flatten(-AXES[scope]), rows.protected.flatten(-AXES[scope])
    selection_errors.budget(keep, ratio, pools.shape[-1], pools.shape[:-1])
    budgets = pool_budgets(keep, ratio, pool_sizes(rows, scope))
    selection_errors.room(keep, ratio, budgets, shields.sum(-1))
    total = budgets.sum(-1) if scope == "head" else budgets
    heads = rows.scores.shape[rows.real.ndim : -1].numel()
    outside = rows.protected if rows.padding is None else rows.protected | rows.padding
    refined = refine_rows(
        Scored(rows.scores, outside),
        refinement,
        rows.vectors,
        total // max(1, heads),
        (total, heads * rows.real),
        ratio,
        rows.scores.shape[-1] - rows.real,
    )
    return select(ranked(refined, rows.padding), rows.protected, budgets, scope)


def _marked(
    rows: Rows,
    keep: int | Tensor | None,
    ratio: float | None,
    refinement: Refinement,
    config: HexConfig,
) -> Tensor:
    """Mark what HEX keeps exactly in the span it compresses: one set for all heads of a layer."""
    length, span = rows.scores.shape[-1], span_length(config, rows.scores.shape[-1])
    layers = prod(rows.scores.shape[rows.real.ndim : -2])
    if keep is None and ratio is None:
        heavy: Any = Fraction(str(config.heavy))
        ratio = 1 - heavy
    selection_errors.budget(keep, ratio, layers * span, rows.real.shape)
    place = torch.arange(length, device=rows.scores.device)
    scores = rows.scores / (length - place) if config.normalize else rows.scores
    apart = rows.protected[..., :span].any(-2)
    outside, inside = rows.protected, torch.ones_like(apart)
    if rows.padding is not None:
        outside, inside = outside | rows.padding, ~rows.padding[..., :span].any(-2)
    sizes = (rows.real - (length - span)).clamp(min=0) * layers
    budgets = pool_budgets(keep, ratio, sizes)
    mass = refine_rows(
        Scored(scores, outside),
        refinement,
        rows.vectors,
        budgets // max(1, layers),
        (budgets, sizes),
        None if ratio is None else float(ratio),
        length - rows.real,
    ).sum(-2)[..., :span]
    recent = (place[:span] >= span - (0 if config.carry_recent else config.recent)) & inside
    if config.outside_recent:
        apart = apart | recent
    pools, aside = (x.flatten(rows.real.ndim) for x in (ranked(mass, ~inside), apart))
    taken = torch.minimum(aside.sum(-1) + budgets, sizes)
    best = retain(pools[..., None, :], aside[..., None, :], keep=taken, scope="layer")
    return best.view(apart.shape) | recent
