"""A whole compressor on tensors: refine, retain, store, whatever came before."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference import compress_errors as refuse
from reference import selection_errors
from reference.evict import DenseCache, RaggedCache, evict
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache, carried, hex_store
from reference.hex.heavy_hitters import recent_mask
from reference.hex.presets import HexConfig
from reference.hubkv.locality import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.refinement import refine
from reference.retain import AXES, kept_count, retain
from reference.scorers.scored import Scored


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
    r"""Refine the scores, retain a budget of tokens, and store what is left.

    $$(K, V, s, P) \;\xrightarrow{\text{refine}}\; z \;\xrightarrow{\text{retain}}\; S
      \;\xrightarrow{\text{store}}\; (K_S, V_S) \;\text{ or }\; (\widehat K, \widehat V)$$

    Args:
        keys: keys $K$, as the cache holds them.
        values: values $V$, of the shape of the keys.
        scored: what a scorer returned: raw scores $s$ and protected tokens $P$.
        keep: budget of every pool, from 0 to its size, padding included; a tensor holds one for
            each. A pool with fewer real entries keeps them all.
        ratio: removed share $r$ of the real entries, in [0, 1], instead of `keep`.
        scope: which entries form a pool: those of a `"head"`, a `"layer"`, or the `"model"`, whose
            layers are the first axis, as in `retain`.
        refinement: settings of HubKV, GraphKV or NMS; none by default.
        queries: the queries, where GraphKV's edges compare them.
        valid: true at real tokens, false at the padding on the left of a row; the rows are the
            axes before the heads, without the layers where `scope` is `"model"`.
        store: settings of HEX, to keep the chosen tokens exactly and quantise the rest instead of
            evicting it.

    Returns:
        Without `store`, what `evict` returns. With it, a `HexCache` with one block, in which the
        budget counts heavy hitters of the span (by default the share that the settings name), one
        set for all heads; protected tokens and the recent window stand beside them. Each row comes
        out as though it stood alone, without its padding.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: shapes do not fit each other, both or neither of `keep` and `ratio` are given
            (neither is fine with `store`), a budget is out of range or below the protected
            entries of a pool, a score is NaN or infinite, or negative where it is refined, `valid`
            is no left padding, `store` recompresses where there is padding, or a setting is
            outside its range.

    Source:
        HubKV-1, HubKV-13, GraphKV-4.1, HEX-3.5a.

    Reading:
        C2, C6, E-H10, E-U35: budgets count real tokens; HEX adds the refined scores of all heads
        up; the gate takes the share that is removed.
    """
    refuse.compression(keys, values, scored, scope, refinement, valid, store, queries)
    scores, protected = widen(scored.scores), scored.protected
    vectors = compared(refinement, keys, values, queries)
    if scope == "model":  # rows first, then their layers
        scores, protected = scores.movedim(0, -3), protected.movedim(0, -3)
        vectors = {name: x.movedim(0, -4) for name, x in vectors.items()}
    if valid is None:
        rows = scores.shape[: -2 if scope == "head" else -AXES[scope]]
        valid = protected.new_ones(*rows, scores.shape[-1])
    alone = each_row(scores, protected, vectors, valid)
    if store is not None:
        marked = _marked(alone, scores, valid, keep, ratio, scope, refinement, store)
        marked = marked.movedim(-2, 0) if scope == "model" else marked
        return hex_store(keys, values, scored.scores, marked, valid, store)
    pools = scores.flatten(-AXES[scope])
    selection_errors.budget(keep, ratio, pools.shape[-1], pools.shape[:-1])
    kept = torch.zeros_like(protected)
    for row, start, one, beside in alone:
        shields = one.protected.flatten(-AXES[scope])
        budgets = row_budgets(keep, ratio, row, shields)
        selection_errors.room(keep, ratio, budgets, shields.sum(-1))
        heads, total = one.scores.shape[:-1].numel(), int(budgets.sum())
        refined = refine(
            one,
            refinement,
            keep=total // max(1, heads),
            ratio=1 - total / max(1, one.scores.numel()) if ratio is None else ratio,
            **beside,
        )
        kept[row][..., start:] = retain(refined, one.protected, keep=budgets, scope=scope)
    return evict(keys, values, kept.movedim(-3, 0) if scope == "model" else kept)


def compared(
    refinement: HubSettings | GraphSettings | NmsSettings | None,
    keys: Tensor,
    values: Tensor,
    queries: Tensor | None,
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


def each_row(
    scores: Tensor, protected: Tensor, vectors: dict[str, Tensor], valid: Tensor
) -> Iterator[tuple[tuple[int, ...], int, Scored, dict[str, Tensor]]]:
    """Walk through the rows, each with its start and what is left of it without its padding."""
    for row in product(*map(range, valid.shape[:-1])):
        start = int((~valid[row]).sum())
        one = Scored(scores[row][..., start:], protected[row][..., start:])
        yield row, start, one, {name: x[row][..., start:, :] for name, x in vectors.items()}


def row_budgets(
    keep: int | Tensor | None, ratio: float | None, row: tuple[int, ...], pools: Tensor
) -> Tensor:
    """Return the budget of each pool of a row: entries along the last axis."""
    size = pools.shape[-1]
    if ratio is not None:
        budget = torch.tensor(kept_count(size, ratio))
    else:
        budget = keep[row] if isinstance(keep, Tensor) else torch.tensor(keep)
    return budget.clamp(max=size).to(pools.device).expand(pools.shape[:-1])


def _marked(
    alone: Iterator[tuple[tuple[int, ...], int, Scored, dict[str, Tensor]]],
    scores: Tensor,
    valid: Tensor,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    refinement: HubSettings | GraphSettings | NmsSettings | None,
    config: HexConfig,
) -> Tensor:
    """Mark what HEX keeps exactly in the span it compresses: one set for all heads of a layer."""
    length = scores.shape[-1]
    span = max(0, length - carried(config)) // config.block * config.block
    layers = scores.shape[-3:-2] if scope == "model" else ()
    if keep is None and ratio is None:
        heavy: Any = Fraction(str(config.heavy))
        ratio = 1 - heavy
    pool = prod(layers) * span
    selection_errors.budget(keep, ratio, pool, valid.shape[:-1])
    marked = valid.new_zeros(*valid.shape[:-1], *layers, span)
    for row, start, one, beside in alone:
        tokens = max(0, span - start)
        if config.normalize:
            seen = torch.arange(length - start, 0, -1, device=scores.device)
            one = one._replace(scores=one.scores / seen)
        shields = one.protected[..., :tokens].any(-2)
        recent = recent_mask(tokens, 0 if config.carry_recent else config.recent)
        recent = recent.to(scores.device).expand(shields.shape)
        apart = (shields | recent if config.outside_recent else shields).flatten()
        budget = row_budgets(keep, ratio, row, apart)
        removed = 1 - int(budget) / max(1, len(apart)) if ratio is None else float(ratio)
        share = int(budget) // max(1, prod(layers))
        mass = refine(one, refinement, keep=share, ratio=removed, **beside).sum(-2)
        taken = min(len(apart), int(apart.sum() + budget))
        best = retain(mass[..., :tokens].flatten(), apart, keep=taken)
        marked[row][..., span - tokens :] = best.view(shields.shape) | recent
    return marked
