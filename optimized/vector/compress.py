"""Whole compressors, all rows at once."""

from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized.vector.evict import evict
from optimized.vector.hex.cache import hex_store
from optimized.vector.refinement import refine_rows
from optimized.vector.retain import kept_count, retain
from reference.compress import compared
from reference.evict import DenseCache, RaggedCache
from reference.hex.cache import HexCache, span_length
from reference.hex.presets import HexConfig
from reference.precision import widen
from reference.refinement import Refinement
from reference.retain import room
from reference.rules import AXES
from reference.scorers.scored import Scored


class Rows(NamedTuple):
    """What is ranked, rows before layers before heads, nothing in the padding."""

    scores: Tensor
    protected: Tensor
    vectors: dict[str, Tensor]
    padding: Tensor | None
    real: Tensor  # tokens of each row that are no padding


def select(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    scope: str = "head",
    refinement: Refinement | None = None,
    queries: Tensor | None = None,
    valid: Tensor | None = None,
) -> Tensor:
    rows = rows_of(keys, values, scored, scope, refinement, queries, valid)
    shields = rows.protected.flatten(-AXES[scope])
    budgets = pool_budgets(keep, ratio, pool_sizes(rows, scope))
    room(keep, ratio, budgets, shields.sum(-1))
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
    kept = best(ranked(refined, rows.padding), rows.protected, budgets, scope)
    return kept.movedim(-3, 0) if scope == "model" else kept


def compress(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    scope: str = "head",
    refinement: Refinement | None = None,
    queries: Tensor | None = None,
    valid: Tensor | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    how: dict[str, Any] = dict(keep=keep, ratio=ratio, scope=scope, refinement=refinement)
    how |= dict(queries=queries, valid=valid)
    if store is None:
        return evict(keys, values, select(keys, values, scored, **how))
    exact = select_for_hex(keys, values, scored, **how, store=store)
    return hex_store(keys, values, scored.scores, exact, valid, store)


def select_for_hex(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    refinement: Refinement | None,
    queries: Tensor | None,
    valid: Tensor | None,
    store: HexConfig,
) -> Tensor:
    """Mark what HEX keeps exactly in the span it compresses: one set for all heads of a layer."""
    rows = rows_of(keys, values, scored, scope, refinement, queries, valid)
    length, span = rows.scores.shape[-1], span_length(store, rows.scores.shape[-1])
    layers = prod(rows.scores.shape[rows.real.ndim : -2])
    if keep is None and ratio is None:
        heavy: Any = Fraction(str(store.heavy))
        ratio = 1 - heavy
    place = torch.arange(length, device=rows.scores.device)
    scores = rows.scores / (length - place) if store.normalize else rows.scores
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
    recent = (place[:span] >= span - (0 if store.carry_recent else store.recent)) & inside
    if store.outside_recent:
        apart = apart | recent
    pools, aside = (x.flatten(rows.real.ndim) for x in (ranked(mass, ~inside), apart))
    taken = torch.minimum(aside.sum(-1) + budgets, sizes)
    chosen = retain(pools[..., None, :], aside[..., None, :], keep=taken, ratio=None, scope="layer")
    exact = chosen.view(apart.shape) | recent
    return exact.movedim(-2, 0) if scope == "model" else exact


def rows_of(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    scope: str,
    refinement: Refinement | None,
    queries: Tensor | None,
    valid: Tensor | None,
) -> Rows:
    """Lay out the rows, and blank their padding."""
    vectors = compared(refinement, keys, values, queries)
    scores, protected = widen(scored.scores), scored.protected
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


def best(scores: Tensor, protected: Tensor, budgets: Tensor, scope: str) -> Tensor:
    """Keep each pool's budget; rows come first in every scope."""
    if scope == "head":
        return retain(scores, protected, keep=budgets, ratio=None, scope="head")
    pools, shields = (x.flatten(-AXES[scope]).unsqueeze(-2) for x in (scores, protected))
    kept = retain(pools, shields, keep=budgets, ratio=None, scope="layer")
    return kept.view(scores.shape)
