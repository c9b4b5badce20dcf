"""The sparse similarity graph: a few strong sources, and an edge from each to every token."""

from fractions import Fraction
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import indexing, multiple, nonnegative_at_most
from reference.contract.types import Finite, Share, Whole
from reference.precision import widen

Kind = Literal["kk", "qk", "qq", "kv", "vv"]
"""Which vectors an edge compares: the source's, then the token's."""


def within_budget(keep: int, window: int) -> None:
    """Refuse a window above its budget."""
    nonnegative_at_most("window", window, keep)


@requires(within_budget)
def source_count(keep: Whole, fraction: Share = 0.3, window: Whole = 0) -> int:
    r"""Return how many tokens of a cache budget act as sources.

    $$k = \max\bigl(1, \lfloor f \cdot (k_l - w) \rfloor\bigr)$$

    Args:
        keep: the layer's budget $k_l$ in tokens.
        fraction: share $f$ of the budget.
        window: tokens $w$ of the budget that a protected window takes, in [0, keep].

    Returns:
        The number of sources $k$, at least 1: a budget of 512 has 153.

    Source:
        GraphKV-6.1. In words (§6.1): "we utilized a proportion of the KV cache budget as the number
        of source nodes". Rounding, the least of one and the window are ours (E-G7).

    Reading:
        E-G7: 0.3 of a budget is no integer; rounded down, and the window counts unless given.
    """
    return max(1, int(Fraction(str(fraction)) * (keep - window)))


def rankable(count: int, tokens: int, protected: Tensor | None) -> None:
    """Refuse a count above the content tokens of a row."""
    if protected is not None and may_read_values(protected):
        tokens = int((~protected).sum(-1).min())
    nonnegative_at_most("count", count, tokens)


@requires(rankable)
def source_tokens(
    scores: Finite[Tensor, "*heads tokens"],
    count: Whole,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
) -> Int64[Tensor, "*heads sources"]:
    r"""Return the tokens with the highest scores, best first.

    $$O_{\mathrm{source}} = \{o_i \mid s_i \text{ ranks in top-}k\}$$

    Args:
        scores: importance $s$.
        count: number of sources $k$.
        protected: true at tokens that cannot be sources.

    Returns:
        Positions in rank order; among equal scores the lowest index comes first.

    Source:
        GraphKV-2, GraphKV-Alg1. As printed (Eq. 2); ties go to the lowest index, and protected
        tokens are no sources (E-G13).

    Reading:
        E-G13: protected tokens are no sources.
    """
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :count]


def positions(sources: Tensor, tokens: int) -> None:
    """Refuse a source that is no position of a token."""
    indexing("sources", sources, tokens)


def compared_vectors_given(kind: str, queries: Tensor | None, values: Tensor | None) -> None:
    """Refuse a kind without the vectors that it compares."""
    for name, vectors in (("queries", queries), ("values", values)):
        if name[0] in kind and vectors is None:
            raise ValueError(f"{name} must be given where kind is {kind!r}, got None")


def averageable(keys: Tensor, queries: Tensor | None) -> None:
    """Refuse queries that are not a whole number of heads, at least one, for each of keys."""
    if queries is None or queries.shape == keys.shape:
        return
    got, shape = tuple(queries.shape), tuple(keys.shape)
    if not len(got) == len(shape) > 2 or got[:-3] + got[-2:] != shape[:-3] + shape[-2:]:
        raise ValueError(f"queries must have shape {shape} but for the heads, got {got}")
    multiple("queries", got[-3], shape[-3], least=1)


@requires(positions, compared_vectors_given, averageable)
def edges(
    keys: Finite[Tensor, "*heads tokens width"],
    sources: Int64[Tensor, "*heads sources"],
    kind: Kind = "kk",
    queries: Finite[Tensor, "*query_heads tokens width"] | None = None,
    values: Finite[Tensor, "*heads tokens width"] | None = None,
    clamp: bool = False,
) -> Float[Tensor, "*heads sources tokens"]:
    r"""Cosine similarity of each source to each token.

    $$e_{ij} = \frac{\langle k_i, k_j \rangle}{\lVert k_i \rVert\, \lVert k_j \rVert}$$

    Args:
        keys: key vectors $k$ as the cache holds them.
        sources: positions $i$ of the sources.
        kind: which vectors are compared, the source's then the token's: `kk`, `qk`, `qq`, `kv` or
            `vv` (so `qk` is the source's query against the token's key).
        queries: query vectors, for `qk` and `qq`; $G$ query heads for each head of `keys` are
            averaged.
        values: value vectors, for `kv` and `vv`.
        clamp: replace negative similarities by 0.

    Returns:
        The edges $e$ in [-1, 1], float32 (float64 for float64 input): 0 at a vector of length 0.
        The edge of a source to itself is there as well; `neighbours` leaves it out.

    Source:
        GraphKV-1, GraphKV-Alg1, GraphKV-7.1. As printed (Eq. 1); the other kinds are named in §7.1
        and not defined (E-G17), `clamp` is ours (E-G4), a vector of length 0 has edges 0 (E-G19).

    Reading:
        E-G4: rounding may not leave [-1, 1]; `clamp` is off, as printed. E-G12: keys after rotary
        embedding. E-G17: direction and grouped queries. E-G19: a vector of length 0 has edges 0.
    """
    vectors = {"k": widen(keys)}
    if queries is not None:
        vectors["q"] = group_mean(queries, keys)
    if values is not None:
        vectors["v"] = widen(values)
    start, end = vectors[kind[0]], vectors[kind[1]]
    weights = torch.zeros(
        *sources.shape, keys.shape[-2], dtype=torch.result_type(start, end), device=keys.device
    )
    for i in range(sources.shape[-1]):
        source = start.take_along_dim(sources[..., i, None, None], -2)
        inner = (source * end).sum(-1)
        lengths = source.norm(dim=-1) * end.norm(dim=-1)
        weights[..., i, :] = torch.where(lengths > 0, inner / lengths, 0).clamp(-1, 1)  # E-G4
    return weights.clamp(min=0) if clamp else weights


def group_mean(
    queries: Float[Tensor, "*query_heads tokens width"], keys: Float[Tensor, "*heads tokens width"]
) -> Float[Tensor, "*heads tokens width"]:
    """Average the queries that share a head of `keys`, in float32 or float64."""
    queries = widen(queries)
    if queries.shape == keys.shape:
        return queries
    return queries.unflatten(-3, (keys.shape[-3], -1)).mean(-3)


def neighbour_count(predefined: Whole, length: Whole) -> int:
    r"""Return how many neighbours each source reaches, adapted to the length of the input.

    $$m = \min(m_0, L), \qquad L = \lfloor n \cdot 10^{-3} \rfloor$$

    Args:
        predefined: the number $m_0$ set beforehand.
        length: tokens $n$ of the input.

    Returns:
        The number of neighbours $m$: 8 of 64 at 8000 tokens, none below 1000.

    Source:
        GraphKV-6.2. In words (§6.2): "we set the number of adjacent nodes as the minimum between a
        predefined value and the query length". Thousands are the L of Figure 5; rounding down is
        ours (E-G8).

    Reading:
        E-G8: no value of $m_0$ is given, so there is no default; $L$ counts thousands of tokens,
        and is rounded down.
    """
    return min(predefined, length // 1000)


@requires(positions)
def neighbours(
    weights: Finite[Tensor, "*heads sources tokens"],
    sources: Int64[Tensor, "*heads sources"],
    count: Whole,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    spare_sources: bool = False,
) -> Bool[Tensor, "*heads sources tokens"]:
    r"""Mark, for each source, the tokens at its strongest edges.

    $$N(o_i) = \{o_j \mid e_{ij} \ge e_{i(m)},\; j \ne i\}$$

    Args:
        weights: edges $e$ of `edges`.
        sources: positions $i$ of the sources.
        count: number of neighbours $m$.
        protected: true at tokens that are nobody's neighbour.
        spare_sources: no source is a neighbour of another.

    Returns:
        True at exactly $\min(m, \text{candidates})$ tokens a source, never the source itself;
        among equal edges the lowest index is taken.

    Source:
        GraphKV-3, GraphKV-Alg2. Corrected (E-G9): printed "$e_{ij} \geq e_{i(m)}$" (Eq. 3), which
        at ties is more than $m$ neighbours. Alg. 2 has "top-$m$": exactly $m$, here the lowest
        index first, and no protected token (E-G13).

    Reading:
        E-G3: sources are neighbours of sources, as printed. E-G8, E-G9: exactly $m$, at most the
        candidates. E-G13: protected tokens are no neighbours.
    """
    allowed = weights.new_ones((*weights.shape[:-2], weights.shape[-1]), dtype=torch.bool)
    if protected is not None:
        allowed = ~protected
    if spare_sources:
        allowed = allowed.scatter(-1, sources, False)
    tokens = torch.arange(weights.shape[-1], device=weights.device)
    reached = torch.zeros_like(weights, dtype=torch.bool)
    for i in range(sources.shape[-1]):
        candidates = allowed & (tokens != sources[..., i, None])
        ranked = weights[..., i, :].masked_fill(~candidates, -torch.inf)
        best = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :count]
        reached[..., i, :] = candidates & torch.zeros_like(candidates).scatter(-1, best, True)
    return reached
