"""Which cache entries a budget keeps: exactly as many as it says, protected ones first."""

from fractions import Fraction
from itertools import product

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import AXES, budget, covers, scoped
from reference.contract.types import Orderable, Ratio, Scope, Whole
from reference.precision import widen


def kept_count(pool: Whole, ratio: Ratio) -> int:
    r"""How many of `pool` entries are kept when the share `ratio` is removed.

    $$B = \lfloor (1 - r)\, N \rfloor$$

    Args:
        pool: number $N$ of entries that compete.
        ratio: removed share $r$.

    Returns:
        The budget $B$: 10 of 100 at 0.9, where binary arithmetic gives 9.

    Source:
        HubKV-1. In words (A): "The compression ratio $r$ denotes the fraction of KV entries
        removed". Rounding down is ours (C2).

    Reading:
        C2: the removed share is at least $r$, the arithmetic exact.
    """
    return (1 - Fraction(str(ratio))) * pool // 1  # torch.compile traces this, but not floor


def ranking(scores: Orderable[Tensor, "*heads tokens"]) -> Int64[Tensor, "*heads tokens"]:
    r"""The positions of each head from the best score to the worst.

    $$i \prec j \iff s_i > s_j \;\lor\; (s_i = s_j \land i < j)$$

    Args:
        scores: importance $s$; minus infinity, the mark of an evicted token, ranks last.

    Returns:
        The positions, best first; equal scores stay in position order, and -0.0 equals 0.0.

    Source:
        HubKV-3. Ours: print says "the $B$ highest entries" (§3.3) and no order of equal ones (C1).

    Reading:
        C1: one total order everywhere, which `torch.topk` does not give.
    """
    return scores.argsort(dim=-1, descending=True, stable=True)


@requires(scoped, budget)
def retain(
    scores: Orderable[Tensor, "*heads tokens"],
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: Ratio | None = None,
    scope: Scope = "head",
) -> Bool[Tensor, "*heads tokens"]:
    r"""Keep exactly the budget of each pool: the protected entries, then the best of the rest.

    $$S^* = \arg\max_{S \supseteq P,\; |S| = B} \sum_{i \in S} s_i$$

    Args:
        scores: importance $s$, laid out `[layers, ..., heads, tokens]`; minus infinity marks an
            evicted token, which is kept only when nothing else is left.
        protected: the set $P$, true at entries that are kept whatever their score; they count
            towards the budget.
        keep: budget $B$ of every pool, from 0 to the pool's size; a tensor holds one for each.
        ratio: removed share $r$, instead of `keep`: the budget is `kept_count`.
        scope: which entries form a pool. `"head"`: the tokens of a head. `"layer"`: heads and
            tokens of a layer. `"model"`: layers, heads and tokens, each batch row its own pool.

    Returns:
        The mask of $S^*$. Of equal scores the lowest (layer, head, position) is kept.

    Source:
        HubKV-1, HubKV-3, GraphKV-4.1. As printed (Eq. 3 of HubKV) for the modular utility, but with
        $|S| = B$ for its $|S| \leq B$: §3.3 keeps "the $B$ highest entries" (C2). That protected
        tokens take part of the budget is said in A.1.

    Reading:
        C1, C2, C6, E-U16: ties, counts and protected entries; never a threshold, never a
        sentinel.
    """
    if protected is None:
        protected = torch.zeros_like(scores, dtype=torch.bool)
    pools, shields = pooled(scores, scope), pooled(protected, scope)
    counted = keep if ratio is None else kept_count(pools.shape[-1], ratio)
    budgets = torch.as_tensor(counted, device=scores.device).expand(pools.shape[:-1])
    require_budget_covers_protected(ratio, budgets, shields.sum(-1))
    kept = torch.zeros_like(shields)
    best_first = ranking(pools)
    for pool in product(*map(range, budgets.shape)):
        order, shield = best_first[pool], shields[pool]
        protected_first = torch.cat([order[shield[order]], order[~shield[order]]])
        kept[pool][protected_first[: budgets[pool]]] = True
    return unpooled(kept, scores.shape, scope)


def modular_utility(
    scores: Orderable[Tensor, "*heads tokens"], kept: Bool[Tensor, "*heads tokens"]
) -> Float[Tensor, "*heads"]:
    r"""The utility that Top-K maximises: every kept token counts, whatever its neighbours.

    $$F_{mod}(S) = \sum_{i \in S} s_i$$

    Args:
        scores: importance $s$; minus infinity marks an evicted token.
        kept: the retained set $S$.

    Returns:
        $F_{mod}(S)$ of each head in float32, or float64 where `scores` is; 0 of the empty set.

    Source:
        HubKV-3. As printed (§3.1).
    """
    scores = widen(scores)
    utility = scores.new_zeros(scores.shape[:-1])
    for i in range(scores.shape[-1]):
        utility += torch.where(kept[..., i], scores[..., i], 0)
    return utility


def require_budget_covers_protected(
    ratio: float | None, budgets: Tensor, protected: Tensor
) -> None:
    """Refuse a budget (from `ratio` if given) smaller than the protected entries of its pool."""
    if not may_read_values(budgets) or not bool((short := budgets < protected).any()):
        return
    most = int(protected[short][0])
    if ratio is None:
        covers(int(budgets[short][0]), most)
    raise ValueError(f"ratio must leave the {most} protected entries of a pool, got {ratio}")


def pooled(x: Tensor, scope: str) -> Tensor:
    """Put the entries of a pool along the last axis, in order of (layer, head, position)."""
    return (x.movedim(0, -3) if scope == "model" else x).flatten(-AXES[scope])


def unpooled(kept: Tensor, shape: torch.Size, scope: str) -> Tensor:
    """Undo `pooled`."""
    if scope == "model":
        return kept.reshape(*shape[1:-2], shape[0], *shape[-2:]).movedim(-3, 0)
    return kept.reshape(shape)
