"""Whole compressors, all rows at once."""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

import reference
from optimized._composed import composed
from optimized.vector.hex.heavy_hitters import recent_mask
from optimized.vector.refinement import refine
from optimized.vector.retain import kept_count, retain
from reference.compress import for_hex, vectors_compared
from reference.graphkv.refine import GraphSettings
from reference.hex.presets import HexConfig
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.refinement import Refinement
from reference.retain import covers_protected
from reference.rules import AXES
from reference.scorers.scored import Scored

EDGES = 1 << 21
"""Edges of graphs at one time: as many as a CPU's cache holds, and 256 times as many on a GPU."""


class Rows(NamedTuple):
    """What is ranked, rows before layers before heads, nothing in the padding."""

    scored: Scored
    vectors: dict[str, Tensor]
    padding: Tensor | None
    real: Tensor  # tokens of each row that are no padding


def select(
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
) -> Tensor:
    rows = rows_of(scored, scope, valid, vectors_compared(refinement, keys, values, queries))
    scores, protected = rows.scored
    budgets = pool_budgets(keep, ratio, pool_sizes(rows, scope))
    covers_protected(keep, ratio, budgets, protected.flatten(-AXES[scope]).sum(-1))
    total = budgets.sum(-1) if scope == "head" else budgets
    heads = prod(scores.shape[rows.real.ndim : -1])
    refined = refine_rows(rows, refinement, total, heads, rows.real, ratio)
    kept = best(ranked(refined, rows.padding), protected, budgets, scope)
    return kept.movedim(-3, 0) if scope == "model" else kept


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
    vectors = vectors_compared(refinement, keys, values, queries)
    scored, share, span = for_hex(scored, keep, ratio, store)
    rows = rows_of(scored, scope, valid, vectors)
    protected, padding = rows.scored.protected, rows.padding
    apart = protected[..., :span].any(-2)
    inside = torch.ones_like(apart) if padding is None else ~padding[..., :span].any(-2)
    tokens = (rows.real - (protected.shape[-1] - span)).clamp(min=0)
    layers = prod(apart.shape[rows.real.ndim : -1])
    budgets = pool_budgets(keep, share, tokens * layers)
    removed = None if share is None else float(share)
    mass = refine_rows(rows, refinement, budgets, layers, tokens, removed).sum(-2)[..., :span]
    recent = recent_mask(span, 0 if store.carry_recent else store.recent).to(inside.device) & inside
    if store.outside_recent:
        apart = apart | recent
    pools, aside = (x.flatten(rows.real.ndim) for x in (ranked(mass, ~inside), apart))
    taken = torch.minimum(aside.sum(-1) + budgets, tokens * layers)
    chosen = retain(pools[..., None, :], aside[..., None, :], keep=taken, ratio=None, scope="layer")
    exact = chosen.view(apart.shape) | recent
    return exact.movedim(-2, 0) if scope == "model" else exact


compress = composed(reference.compress)


def rows_of(scored: Scored, scope: str, valid: Tensor | None, vectors: dict[str, Tensor]) -> Rows:
    """Lay out the rows, and blank their padding."""
    scores, protected = widen(scored.scores), scored.protected
    if scope == "model":
        scores, protected = scores.movedim(0, -3), protected.movedim(0, -3)
        vectors = {name: x.movedim(0, -4) for name, x in vectors.items()}
    if valid is None:
        rows = scores.shape[: -3 if scope == "model" else -2]
        real = torch.full(rows, scores.shape[-1], device=scores.device)
        return Rows(Scored(scores, protected), vectors, None, real)
    padding = ~across(valid, scores)
    blank = {
        name: x.masked_fill(~across(valid, x[..., 0])[..., None], 0) for name, x in vectors.items()
    }
    one = Scored(scores.masked_fill(padding, 0), protected & ~padding)
    return Rows(one, blank, padding, valid.sum(-1))


def across(valid: Tensor, like: Tensor) -> Tensor:
    """Spread a mask of rows and tokens over what stands between them."""
    *rows, tokens = valid.shape
    return valid.reshape(*rows, *[1] * (like.ndim - valid.ndim), tokens).expand(like.shape)


def refine_rows(
    rows: Rows,
    refinement: Refinement | None,
    total: Tensor,
    heads: int,
    tokens: Tensor,
    ratio: float | None,
) -> Tensor:
    """Refine rows, in each of which a `total` stays of so many heads of so many tokens."""
    scores, outside = rows.scored
    if rows.padding is not None:
        outside = outside | rows.padding
    keep = total // max(1, heads)
    if isinstance(refinement, HubSettings) and ratio is None:
        settings = torch.stack([total, heads * tokens]).view(2, -1)
    elif isinstance(refinement, GraphSettings):
        length = scores.shape[-1]
        # where the window comes off the budget, padding counts as window
        budget = keep + length - rows.real if refinement.exclude_window else keep
        most = rows.real // 1000 if refinement.adaptive else torch.full_like(keep, length)
        counts = most.clamp(max=min(refinement.count, length))
        settings = torch.stack([budget, counts]).view(2, -1)
    else:
        return refine(Scored(scores, outside), refinement, keep=0, ratio=ratio)
    refined = torch.empty_like(scores)
    if not scores.numel():
        return refined
    different, which = settings.unique(dim=1, return_inverse=True)
    lead = scores.shape[:-2]
    which = which.view((*keep.shape, *[1] * (len(lead) - keep.ndim))).expand(lead)
    for number, (kept, of) in enumerate(different.T.tolist()):
        gate = max(0.0, 1 - kept / max(1, of)) if ratio is None else ratio
        together = lead.numel()
        if isinstance(refinement, GraphSettings):
            refinement = refinement._replace(count=of, adaptive=False)
            room = EDGES if scores.device.type == "cpu" else 256 * EDGES
            together = max(1, room // max(1, kept * scores.shape[-2:].numel()))
        for same in (which == number).nonzero().split(together):
            place = same.unbind(-1) if len(same) < lead.numel() else ...
            beside = {name: x[place] for name, x in rows.vectors.items()}
            part = Scored(scores[place], outside[place])
            refined[place] = refine(part, refinement, keep=kept, ratio=gate, **beside)
    return refined


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
    shape = rows.scored.scores.shape
    if scope == "head":
        return rows.real[..., None].expand(shape[:-1])
    return rows.real * prod(shape[-AXES[scope] : -1])


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
