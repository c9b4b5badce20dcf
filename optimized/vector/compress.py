"""Selection and compression, all rows at once."""

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized.vector.evict import evict
from optimized.vector.graphkv.graph import EDGES
from optimized.vector.hex.cache import hex_store
from optimized.vector.refinement import refine
from optimized.vector.retain import kept_count, retain
from reference.compress import hex_selection_inputs, vectors_compared
from reference.contract.preconditions import AXES
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache
from reference.hex.heavy_hitters import recent_mask
from reference.hex.presets import HexConfig
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.refinement import Refinement
from reference.retain import require_budget_covers_protected
from reference.scorers.scored import Scored

NO_VECTORS: Any = dict(keys=None, values=None, queries=None)


class Rows(NamedTuple):
    """Scores and vectors with axes in the order rows, layers, heads; padding is zero."""

    scored: Scored
    vectors: dict[str, Tensor]
    padding: Tensor | None
    real: Tensor  # tokens of each row without padding


def refine_and_retain(
    scored: Scored,
    shields: Tensor,
    vectors: dict[str, Tensor],
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    refinement: Refinement | None,
    valid: Tensor | None,
    joint: bool = False,
) -> Tensor:
    if valid is None and not (joint or vectors or isinstance(keep, Tensor)):
        gate = ratio
        if keep is not None:
            layers = scored.scores.shape[0] if scope == "model" else 1
            pool = layers * scored.scores.shape[-min(2, AXES[scope]) :].numel()
            gate = max(0.0, 1 - keep / max(1, pool))
        refined = scored.scores
        if refinement is not None:
            gate = None if gate is None else float(gate)
            refined = refine(scored, refinement, keep=0, ratio=gate, **NO_VECTORS)
        return retain(refined, scored.protected, keep=keep, ratio=ratio, scope=scope)
    rows = rows_of(scored, scope, valid, vectors)
    pools = joint_pools(rows, shields, scope) if joint else rows
    scores, protected = pools.scored
    by = "layer" if joint and scope == "head" else scope
    budgets = pool_budgets(keep, ratio, pools, by)
    heads, length = prod(scores.shape[pools.real.ndim : -1]), scores.shape[-1]
    shared_budget = budget_of_all_pools(keep, ratio, pools, scores.shape[-AXES[by] :].numel())
    if shared_budget is not None:
        total, real = shared_budget * heads if by == "head" else shared_budget, length
    else:
        total, real = budgets.sum(-1) if by == "head" else budgets, pools.real
    shielded = protected.flatten(-AXES[by]).sum(-1)
    if joint:
        budgets = torch.minimum(budgets + shielded, pool_sizes(pools, by))
    else:
        require_budget_covers_protected(ratio, budgets, shielded)
    removed = None if ratio is None else float(ratio)
    refined = refine_rows(rows, refinement, total, heads, real, removed)
    if joint:
        refined = refined.sum(-2, keepdim=True)[..., :length]
    kept = best(rank_padding_last(refined, pools.padding), protected, budgets, by)
    return kept.movedim(-3, 0) if scope == "model" else kept


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
    vectors = vectors_compared(refinement, keys, values, queries)
    return refine_and_retain(
        scored, scored.protected, vectors, keep, ratio, scope, refinement, valid
    )


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
    scored, share, span = hex_selection_inputs(scored, keep, ratio, store)
    shields = scored.protected[..., :span].any(-2, keepdim=True)
    recent = recent_mask(span, 0 if store.carry_recent else store.recent).to(shields.device)
    if valid is not None:
        recent = recent & valid[..., None, :span]
    if store.outside_recent:
        shields = shields | recent
    vectors = vectors_compared(refinement, keys, values, queries)
    kept = refine_and_retain(scored, shields, vectors, keep, share, scope, refinement, valid, True)
    return (kept | recent).squeeze(-2)


def compress(
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
    store: HexConfig | None,
) -> DenseCache | RaggedCache | HexCache:
    settings: Any = dict(
        keep=keep, ratio=ratio, scope=scope, refinement=refinement, queries=queries, valid=valid
    )
    if store is None:
        return evict(keys, values, select(keys, values, scored, **settings))
    exact = select_for_hex(keys, values, scored, store=store, **settings)
    return hex_store(keys, values, scored.scores, exact, valid, store)


def joint_pools(rows: Rows, shields: Tensor, scope: str) -> Rows:
    """Return rows with one head, whose tokens are those of `shields`."""
    shields = shields.movedim(0, -3) if scope == "model" else shields
    span, length = shields.shape[-1], rows.scored.scores.shape[-1]
    first_head = (..., slice(1), slice(span))
    padding = None if rows.padding is None else rows.padding[first_head]
    if padding is not None:
        shields = shields & ~padding
    real = (rows.real - (length - span)).clamp(min=0)
    return Rows(Scored(rows.scored.scores[first_head], shields), {}, padding, real)


def rows_of(scored: Scored, scope: str, valid: Tensor | None, vectors: dict[str, Tensor]) -> Rows:
    """Return scores and vectors with rows as first axes and zeros as padding."""
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
    blanked = Scored(scores.masked_fill(padding, 0), protected & ~padding)
    return Rows(blanked, blank, padding, valid.sum(-1))


def across(valid: Tensor, like: Tensor) -> Tensor:
    """Return a mask of rows and tokens expanded over the axes between them."""
    *rows, tokens = valid.shape
    return valid.reshape(*rows, *[1] * (like.ndim - valid.ndim), tokens).expand(like.shape)


def refine_rows(
    rows: Rows,
    refinement: Refinement | None,
    total: Tensor | int,
    heads: int,
    tokens: Tensor | int,
    ratio: float | None,
) -> Tensor:
    """Return the refined scores of rows that keep a `total` of `heads` times `tokens` entries.

    A number holds for every row, and needs no synchronisation with a GPU.
    """
    scores, outside = rows.scored
    if rows.padding is not None:
        outside = outside | rows.padding
    keep = total // max(1, heads)
    if isinstance(refinement, HubSettings) and ratio is None:
        settings: list[Any] = [total, heads * tokens]
    elif isinstance(refinement, GraphSettings):
        length = scores.shape[-1]
        real = length if isinstance(total, int) else rows.real
        # if the window is excluded from the budget, padding counts as part of it
        budget = keep + length - real if refinement.exclude_window else keep
        most = real // 1000 if refinement.adaptive else keep * 0 + length
        cap = min(refinement.count, length)
        counts = most.clamp(max=cap) if isinstance(most, Tensor) else min(most, cap)
        settings = [budget, counts]
    else:
        return refine(Scored(scores, outside), refinement, keep=0, ratio=ratio, **NO_VECTORS)
    refined = torch.empty_like(scores)
    if not scores.numel():
        return refined
    lead, which = scores.shape[:-2], None
    different = [settings]
    if isinstance(keep, Tensor):
        pairs, which = torch.stack(settings).view(2, -1).unique(dim=1, return_inverse=True)
        which = which.view((*keep.shape, *[1] * (len(lead) - keep.ndim))).expand(lead)
        different = pairs.T.tolist()
    for number, (kept, of) in enumerate(different):
        gate = max(0.0, 1 - kept / max(1, of)) if ratio is None else ratio
        together = lead.numel()
        if isinstance(refinement, GraphSettings):
            refinement = refinement._replace(count=of, adaptive=False)
            room = EDGES if scores.device.type == "cpu" else 1024 * EDGES
            together = max(1, room // max(1, kept * scores.shape[-2:].numel()))
        for index in row_indices(which, number, lead, together):
            beside = {name: x[index] for name, x in rows.vectors.items()}
            part = Scored(scores[index], outside[index])
            refined[index] = refine(part, refinement, keep=kept, ratio=gate, **beside)
    return refined


def row_indices(
    which: Tensor | None, number: int, lead: torch.Size, together: int
) -> Iterator[Any]:
    """Yield indices of the rows with setting `number`, `together` at a time; `...` for all rows."""
    if which is None and together >= lead.numel():
        yield ...
        return
    here = torch.ones(lead, dtype=torch.bool) if which is None else which == number
    for same in here.nonzero().split(together):
        yield same.unbind(-1) if len(same) < lead.numel() else ...


def budget_of_all_pools(
    keep: int | Tensor | None, ratio: float | None, rows: Rows, pool: int
) -> int | None:
    """Return the budget of every pool of `pool` entries, or None if it depends on a tensor."""
    if rows.padding is not None or isinstance(keep, Tensor):
        return None
    return kept_count(pool, ratio) if ratio is not None else min(pool, keep or 0)


def pool_budgets(keep: int | Tensor | None, ratio: float | None, rows: Rows, scope: str) -> Tensor:
    """Return the budget of each pool."""
    sizes = pool_sizes(rows, scope)
    shared = budget_of_all_pools(
        keep, ratio, rows, rows.scored.scores.shape[-AXES[scope] :].numel()
    )
    return budgets_of(keep, ratio, sizes) if shared is None else torch.full_like(sizes, shared)


def budgets_of(keep: int | Tensor | None, ratio: float | None, sizes: Tensor) -> Tensor:
    """Return the budget of each pool, whose number of real entries `sizes` holds."""
    if ratio is None:
        assert keep is not None
        return torch.minimum(torch.as_tensor(keep, device=sizes.device), sizes)
    lengths, which = sizes.unique(return_inverse=True)
    counts = [kept_count(length, ratio) for length in lengths.tolist()]
    return torch.tensor(counts, dtype=torch.int64, device=sizes.device)[which]


def pool_sizes(rows: Rows, scope: str) -> Tensor:
    """Return the number of entries of each pool, without padding."""
    shape = rows.scored.scores.shape
    if scope == "head":
        return rows.real[..., None].expand(shape[:-1])
    return rows.real * prod(shape[-AXES[scope] : -1])


def rank_padding_last(refined: Tensor, padding: Tensor | None) -> Tensor:
    """Return scores that rank padding last, also after entries that a signal evicted."""
    if padding is None:
        return refined
    return refined.clamp(min=torch.finfo(refined.dtype).min).masked_fill(padding, -torch.inf)


def best(scores: Tensor, protected: Tensor, budgets: Tensor, scope: str) -> Tensor:
    """Return the mask of the best entries of each pool; rows come first in every scope."""
    if scope == "head":
        return retain(scores, protected, keep=budgets, ratio=None, scope="head")
    pools, shields = (x.flatten(-AXES[scope]).unsqueeze(-2) for x in (scores, protected))
    kept = retain(pools, shields, keep=budgets, ratio=None, scope="layer")
    return kept.view(scores.shape)
