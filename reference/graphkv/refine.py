"""GraphKV end to end: build the graph, send the signal, hand back the scores."""

from itertools import product
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import covers
from reference.contract.types import Finite, Importance, Share, Whole
from reference.graphkv.decay import Rule, banish, decay, enhance
from reference.graphkv.graph import (
    Kind,
    averageable,
    compared_vectors_given,
    edges,
    group_mean,
    neighbour_count,
    neighbours,
    source_count,
    source_tokens,
)
from reference.precision import widen

Signal = Literal["decay", "enhance", "evict"]
"""What a source does to its neighbours."""


class GraphSettings(NamedTuple):
    """What `graphkv_refine` takes beside scores, vectors and budget, for a pipeline to pass on.

    Source:
        GraphKV-4.1.

    Reading:
        E-G8: the number of neighbours has no default, and is fixed unless `adaptive`.
    """

    count: Whole  # pyright: ignore[reportIncompatibleMethodOverride]
    kind: Kind = "kk"
    fraction: Share = 0.3
    rounds: Whole = 1
    strength: Share = 1.0
    rule: Rule = "product"
    signal: Signal = "decay"
    per_head: bool = False
    spare_sources: bool = False
    clamp: bool = False
    exclude_window: bool = False
    adaptive: bool = False


def concatenate_heads(
    vectors: Float[Tensor, "*batch heads tokens width"],
) -> Float[Tensor, "*batch tokens heads*width"]:
    r"""Put the heads of each token side by side: one vector as wide as the model's cache.

    $$\mathbf{K}^l \in \mathbb{R}^{n \times d}$$

    Args:
        vectors: keys, values or grouped queries.

    Returns:
        The rows of $\mathbf{K}^l$, head 0 first.

    Source:
        GraphKV-4.1. As printed (§4.1): the keys of a layer are one matrix; that the edges compare
        whole rows is our reading (E-G11).

    Reading:
        E-G11: the edges of a layer compare whole rows.
    """
    return vectors.movedim(-3, -2).flatten(-2)


def covers_window(
    keep: int, protected: Tensor | None, per_head: bool, exclude_window: bool
) -> None:
    """Refuse a budget below the window that is excluded from it."""
    if exclude_window and protected is not None and may_read_values(protected):
        window = int((protected if per_head else protected.any(-2)).sum(-1).max())
        covers(keep, window)


@requires(compared_vectors_given, averageable, covers_window)
def graphkv_refine(
    scores: Importance[Tensor, "*batch heads tokens"],
    keys: Finite[Tensor, "*batch heads tokens width"],
    keep: Whole,
    count: Whole,
    protected: Bool[Tensor, "*batch heads tokens"] | None = None,
    *,
    queries: Finite[Tensor, "*batch query_heads tokens width"] | None = None,
    values: Finite[Tensor, "*batch heads tokens width"] | None = None,
    kind: Kind = "kk",
    fraction: Share = 0.3,
    rounds: Whole = 1,
    strength: Share = 1.0,
    rule: Rule = "product",
    signal: Signal = "decay",
    per_head: bool = False,
    spare_sources: bool = False,
    clamp: bool = False,
    exclude_window: bool = False,
    adaptive: bool = False,
) -> Float[Tensor, "*batch heads tokens"]:
    r"""Rescore tokens so that those most like a stronger one fall behind.

    $$s^{(T)} = \operatorname{decay}\bigl(s,\, e,\, N,\, T\bigr), \qquad
      e = \cos(\mathbf{K}^l),\quad N = \text{top-}m(e),\quad
      |O_{\mathrm{source}}| = \max(1, \lfloor f\, k_l \rfloor)$$

    Args:
        scores: importance $s$ by any scorer.
        keys: the keys of the same tokens, as the cache holds them.
        keep: the budget $k_l$ in tokens: of a layer, or of a head with `per_head`.
        count: number of neighbours $m$ of each source.
        protected: true at tokens that are neither sources nor neighbours; a layer's token is
            protected where any of its heads protects it.
        queries: query vectors, where `kind` compares them; grouped heads are averaged.
        values: value vectors, where `kind` compares them.
        kind: which vectors an edge compares: `kk`, `qk`, `qq`, `kv` or `vv`.
        fraction: sources as a share $f$ of the budget.
        rounds: number of rounds $T$.
        strength: strength $\alpha$ of the signal.
        rule: how several sources combine in a decay: `product`, `sequential` or `sum`.
        signal: `decay`, `enhance` or `evict`.
        per_head: one graph a head instead of one a layer.
        spare_sources: no source is a neighbour of another.
        clamp: replace negative similarities by 0.
        exclude_window: take the protected tokens off the budget before the share.
        adaptive: cap $m$ by the thousands of tokens there are, as `neighbour_count` does.

    Returns:
        The scores $s^{(T)}$. Without `per_head` a layer has one score a token, the mean over its
        heads, refined once and repeated for each head.

    Raises:
        ValueError: a score is out of range.

    Source:
        GraphKV-4, GraphKV-5, GraphKV-4.1, GraphKV-6.1, GraphKV-6.2, GraphKV-7.1, GraphKV-7.2. In
        words (Fig. 3): "we perform multiple rounds of decay signal propagation on nodes adjacent to
        source nodes". The parts are marked where they stand; the mean over heads (E-G11), the
        rounding (E-G7) and the remedies (E-G3, E-G4) are ours.

    Reading:
        E-G3, E-G4, E-G7, E-G11: the letter, and the remedies `spare_sources`, `clamp`,
        `exclude_window` and `per_head`. E-G8: the tokens of `scores` are the input. E-G13:
        protected tokens keep their score. E-G20: no more sources than content tokens.
    """
    if protected is None:
        protected = torch.zeros_like(scores, dtype=torch.bool)
    if not scores.numel():
        return scores.clone()
    vectors = {"keys": keys}
    if queries is not None:
        vectors["queries"] = group_mean(queries, keys)
    if values is not None:
        vectors["values"] = values
    if adaptive:
        count = neighbour_count(count, scores.shape[-1])
    refined = widen(scores).clone()
    if not per_head:
        refined, protected = refined.mean(-2), protected.any(-2)
        vectors = {name: concatenate_heads(whole) for name, whole in vectors.items()}
    for graph in product(*map(range, refined.shape[:-1])):
        score, aside = refined[graph], protected[graph]
        nodes = {name: whole[graph] for name, whole in vectors.items()}
        window, content = int(aside.sum()), int((~aside).sum())
        sources = source_count(keep, fraction, window if exclude_window else 0)
        chosen = source_tokens(score, min(sources, content), aside)
        weights = edges(**nodes, sources=chosen, kind=kind, clamp=clamp)
        reached = neighbours(weights, chosen, count, aside, spare_sources)
        if signal == "decay":
            refined[graph] = decay(score, weights, reached, rounds, strength, rule)
        elif signal == "enhance":
            refined[graph] = enhance(score, weights, reached, rounds, strength)
        else:
            refined[graph] = banish(score, reached, rounds)
    if not per_head:
        refined = refined[..., None, :].expand(scores.shape)
    refined = refined.to(scores.dtype).contiguous()
    if signal != "evict":
        checks.refuse_overflow("scores", refined)
    return refined
