"""A whole compressor on tensors: refine scores, retain a budget, store the rest."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import (
    AXES,
    budget,
    budget_fits_pools,
    keys_have_heads_and_channels,
    left_padded,
    same_dtype,
    scoped,
)
from reference.contract.types import Ratio, Scope
from reference.evict import DenseCache, RaggedCache, evict
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache, compressible_length, hex_store
from reference.hex.heavy_hitters import recent_mask
from reference.hex.presets import HexConfig
from reference.precision import widen
from reference.refinement import (
    Refinement,
    finite,
    refine,
    require_finite_scores,
    vectors_fit_refinement,
)
from reference.retain import kept_count, require_budget_covers_protected, retain
from reference.scorers.scored import Scored


def fits_scope(scored: Scored, scope: str, valid: Tensor | None) -> None:
    """Refuse scores that lack an axis of the scope, or a mask of other rows or tokens."""
    try:
        scoped(scored.scores, scope)
    except ValueError as error:
        raise ValueError(f"scored.{error}") from error
    one_flag_per_token(valid, scored.scores, scope)


def one_flag_per_token(valid: Tensor | None, scores: Tensor, scope: str) -> None:
    """Refuse a mask without exactly one flag for each token of a row, for all layers together."""
    wanted = (*scores.shape[1 if scope == "model" else 0 : -2], scores.shape[-1])
    if valid is not None:
        checks.shaped("valid", valid, wanted)


def fits_pools(
    scored: Scored,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    store: HexConfig | None,
) -> None:
    """Refuse both or neither of `keep` and `ratio`, and a `keep` that does not fit the pools."""
    if store is None:
        budget(scored.scores, keep, ratio, scope)
    elif keep is not None or ratio is not None:
        layers = scored.scores.shape[:1] if scope == "model" else ()
        rows = scored.scores.shape[len(layers) : -2]
        pool = prod(layers) * compressible_length(store, scored.scores.shape[-1])
        budget_fits_pools(keep, ratio, pool, rows)


def storable(keys: Tensor, values: Tensor, valid: Tensor | None, store: HexConfig | None) -> None:
    """Refuse padding outside mode "append", and tensors not finite or without head or channel."""
    if store is None:
        return
    if valid is not None and store.mode != "append":
        raise ValueError(
            f"store must be in mode 'append' where valid is given, got {store.mode!r} in {store!r}"
        )
    keys_have_heads_and_channels(keys)
    for name, tensor in (("keys", keys), ("values", values)):
        finite(name, tensor, None if valid is None else valid[..., None, :, None])


def of_one_dtype(keys: Tensor, values: Tensor, store: HexConfig | None) -> None:
    """Refuse to store values of another dtype than the keys."""
    if store is not None:
        same_dtype(keys, values)


@requires(fits_scope, left_padded, fits_pools, vectors_fit_refinement, require_finite_scores)
def select(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: Ratio | None = None,
    scope: Scope = "head",
    refinement: Refinement | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
) -> Bool[Tensor, "*batch kv_heads tokens"]:
    r"""Refine the scores, and mark the tokens that a budget keeps.

    $$(K, V, s, P) \;\xrightarrow{\text{refine}}\; z \;\xrightarrow{\text{retain}}\; S$$

    Args:
        keys: keys $K$, as the cache holds them.
        values: values $V$.
        scored: what a scorer returned: raw scores $s$ and protected tokens $P$.
        keep: budget of every pool, from 0 to its size, padding included; a tensor holds one for
            each. A pool with fewer real entries keeps them all.
        ratio: removed share $r$ of the real entries, instead of `keep`.
        scope: which entries form a pool: those of a `"head"`, a `"layer"`, or the `"model"`, whose
            layers are the first axis, as in `retain`.
        refinement: settings of HubKV, GraphKV or NMS; none by default.
        queries: the queries, where GraphKV's edges compare them.
        valid: true at real tokens, false at the padding on the left of a row; the rows are the
            axes before the heads, without the layers where `scope` is `"model"`.

    Returns:
        The mask of $S$, which `evict` takes. Each row has the result of a call without other rows
        and without padding. No padding is kept.

    Raises:
        ValueError: a budget is below the protected entries of a pool, or what the refinement
            refuses of its budget.

    Source:
        HubKV-1, HubKV-13, GraphKV-4.1. Ours: the steps of the papers in one call.

    Reading:
        C2, C6, E-U35: budgets count real tokens; the gate takes the share that is removed.
    """
    vectors = vectors_compared(refinement, keys, values, queries)
    return refine_and_retain(
        scored, scored.protected, vectors, keep, ratio, scope, refinement, valid
    )


def refine_and_retain(
    scored: Scored,
    shields: Tensor,
    vectors: dict[str, Tensor],
    keep: int | Tensor | None,
    ratio: float | None,
    scope: Scope,
    refinement: Refinement | None,
    valid: Tensor | None,
    joint: bool = False,
) -> Tensor:
    """Refine the scores of each row without its padding; mark `shields` and the best other entries.

    If `joint`, all heads keep one set, by the sum of their scores; the budget excludes `shields`.
    """
    kept = torch.zeros_like(shields)
    for number, index in unpadded_row_indices(scored.scores, scope, valid):
        row, shield = Scored(scored.scores[index], scored.protected[index]), shields[index]
        compared = {name: x[index] for name, x in vectors.items()}
        pools = shield.flatten(-AXES[scope])
        budgets = row_budgets(keep, ratio, number, pools)
        total, heads = int(budgets.sum()), prod(shield.shape[:-1])
        if joint:
            budgets = (budgets + pools.sum(-1)).clamp(max=pools.shape[-1])
        require_budget_covers_protected(ratio, budgets, pools.sum(-1))
        removed = 1 - total / max(1, shield.numel()) if ratio is None else float(ratio)
        refined = refine(row, refinement, keep=total // max(1, heads), ratio=removed, **compared)
        if joint:
            refined = refined.sum(-2, keepdim=True)[..., : shield.shape[-1]]
        kept[index] = retain(refined, shield, keep=budgets, scope=scope)
    return kept


@requires(
    fits_scope,
    left_padded,
    fits_pools,
    vectors_fit_refinement,
    require_finite_scores,
    storable,
    of_one_dtype,
)
def compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: Ratio | None = None,
    scope: Scope = "head",
    refinement: Refinement | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    r"""Refine the scores, retain a budget of tokens, and store or evict the rest.

    $$(K, V, s, P) \;\xrightarrow{\text{select}}\; S
      \;\xrightarrow{\text{store}}\; (K_S, V_S) \;\text{ or }\; (\widehat K, \widehat V)$$

    Args:
        keys: keys $K$, as the cache holds them.
        values: values $V$.
        scored: what a scorer returned: raw scores $s$ and protected tokens $P$.
        keep: budget of every pool, as in `select`.
        ratio: removed share $r$ of the real entries, instead of `keep`.
        scope: which entries form a pool, as in `select`.
        refinement: settings of HubKV, GraphKV or NMS; none by default.
        queries: the queries, where GraphKV's edges compare them.
        valid: true at real tokens, false at the padding on the left of a row, as in `select`.
        store: settings of HEX, to keep the chosen tokens exactly and quantise the rest instead of
            evicting it.

    Returns:
        Without `store`, the entries that `select` marks, as `evict` returns them. With it, a
        `HexCache` with one block, in which the budget counts heavy hitters of the span (by default
        the share that the settings name), one set for all heads; protected tokens and the recent
        window are kept in addition. Each row has the result of a call without other rows and
        without padding.

    Raises:
        ValueError: a budget is below the protected entries of a pool, or what the refinement or
            the store refuses.

    Source:
        HubKV-1, HubKV-13, GraphKV-4.1, HEX-3.5a. Ours: the steps of the papers in one call.

    Reading:
        C2, C6, E-H10, E-U35: budgets count real tokens; HEX adds the refined scores of all heads
        up; the gate takes the share that is removed.
    """
    settings: Any = dict(
        keep=keep, ratio=ratio, scope=scope, refinement=refinement, queries=queries, valid=valid
    )
    if store is None:
        return evict(keys, values, select(keys, values, scored, **settings))
    exact = select_for_hex(keys, values, scored, store=store, **settings)
    return hex_store(keys, values, scored.scores, exact, valid, store)


def select_for_hex(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: Scope,
    refinement: Refinement | None,
    queries: Tensor | None,
    valid: Tensor | None,
    store: HexConfig,
) -> Tensor:
    """Mark the tokens of the span that HEX keeps exactly: one set for all heads of a layer."""
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


def hex_selection_inputs(
    scored: Scored, keep: int | Tensor | None, ratio: float | None, store: HexConfig
) -> tuple[Scored, float | None, int]:
    """Return HEX's normalised scores, the removed share, and the length of the span."""
    scores, tokens = widen(scored.scores), scored.scores.shape[-1]
    if store.normalize:  # divided by the number of queries that see the token
        scores = scores / torch.arange(tokens, 0, -1, device=scores.device)
    share: Any = ratio
    if keep is None and ratio is None:
        share = 1 - Fraction(str(store.heavy))  # exact, unlike a float
    return scored._replace(scores=scores), share, compressible_length(store, tokens)


def unpadded_row_indices(
    scores: Tensor, scope: str, valid: Tensor | None
) -> Iterator[tuple[tuple[int, ...], tuple[int | slice, ...]]]:
    """Yield the index of each batch row, and the index of its real tokens in all layers."""
    layers = (slice(None),) if scope == "model" else ()
    for number in product(*map(range, scores.shape[len(layers) : -2])):
        start = 0 if valid is None else int((~valid[number]).sum())
        yield number, (*layers, *number, slice(None), slice(start, None))


def row_budgets(
    keep: int | Tensor | None, ratio: float | None, number: tuple[int, ...], pools: Tensor
) -> Tensor:
    """Return the budget of each pool of a row; the last axis of `pools` holds its entries."""
    size = pools.shape[-1]
    if ratio is not None:
        budget = torch.tensor(kept_count(size, ratio))
    else:
        budget = keep[number] if isinstance(keep, Tensor) else torch.tensor(keep)
    return budget.clamp(max=size).to(pools.device).expand(pools.shape[:-1])


def vectors_compared(
    refinement: Refinement | None, keys: Tensor, values: Tensor, queries: Tensor | None
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
