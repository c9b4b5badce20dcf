"""GraphKV on one page: scores and keys in, refined scores out. Sections are the paper's."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """Return numbers in float32 at least, in which cosines and products are computed."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def group_mean(queries: Tensor, keys: Tensor) -> Tensor:
    """Average the queries that share a head of keys."""
    queries = widen(queries)
    same = queries.shape == keys.shape
    return queries if same else queries.unflatten(-3, (keys.shape[-3], -1)).mean(-3)


def source_count(keep: int, fraction: float = 0.3, window: int = 0) -> int:
    """Return how many tokens of a budget are sources: a share, at least one (6.1)."""
    return max(1, int(Fraction(str(fraction)) * (keep - window)))


def neighbour_count(predefined: int, length: int) -> int:
    """Return the neighbours of a source: no more than the input has thousands of tokens (6.2)."""
    return min(predefined, length // 1000)


def source_tokens(scores: Tensor, count: int, protected: Tensor | None = None) -> Tensor:
    """Return the tokens with the highest scores, best first, the first of equals (Eq. 2)."""
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    return scores.argsort(dim=-1, descending=True, stable=True)[..., :count]


def cosine(start: Tensor, end: Tensor) -> Tensor:
    """Return the cosine of each vector to each other one; 0 where one has no length (Eq. 1)."""
    start, end = widen(start)[..., :, None, :], widen(end)[..., None, :, :]
    lengths = start.norm(dim=-1) * end.norm(dim=-1)
    return torch.where(lengths > 0, (start * end).sum(-1) / lengths, 0).clamp(-1, 1)


def cosine_matrix(keys: Tensor) -> Tensor:
    """Return the cosine of each token to each token."""
    return cosine(keys, keys)


def edges(
    keys: Tensor, sources: Tensor, kind: str = "kk", queries: Tensor | None = None,
    values: Tensor | None = None, clamp: bool = False,
) -> Tensor:  # fmt: skip
    """Return the cosine of each source to each token: of keys, or of what `kind` says (7.1)."""
    vectors = {"k": keys}
    if queries is not None:
        vectors["q"] = group_mean(queries, keys)
    if values is not None:
        vectors["v"] = values
    start, end = vectors[kind[0]], vectors[kind[1]]
    weights = cosine(start.take_along_dim(sources[..., None], -2), end)
    return weights.clamp(min=0) if clamp else weights


def neighbours(
    weights: Tensor, sources: Tensor, count: int, protected: Tensor | None = None,
    spare_sources: bool = False,
) -> Tensor:  # fmt: skip
    """Mark the tokens at the strongest edges of each source, never itself (Eq. 3)."""
    allowed = torch.ones_like(weights, dtype=torch.bool).scatter(-1, sources[..., None], False)
    if spare_sources:  # what one source may not reach, no source may
        allowed &= allowed.all(-2, keepdim=True)
    if protected is not None:
        allowed &= ~protected[..., None, :]
    order = weights.masked_fill(~allowed, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    return allowed & (order.argsort(-1) < count)


def decay(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int = 1, strength: float = 1.0,
    rule: str = "product",
) -> Tensor:  # fmt: skip
    """Lower each score by its similarity to the sources that reach it (Eq. 4, 5)."""
    after = widen(scores)
    for _ in range(rounds):
        before = after
        for i in range(weights.shape[-2]):
            loss = strength * widen(weights[..., i, :])
            if rule == "product":  # Eq. 5: the sources multiply
                lowered = after * (1 - loss)
            elif rule == "sequential":  # Algorithm 2: the last source that reaches a token counts
                lowered = before * (1 - loss)
            else:  # Fig. 3: the losses add
                lowered = after - before * loss
            after = torch.where(neighbours[..., i, :], lowered, after)
    return after.to(scores.dtype, copy=True)


def enhance(
    scores: Tensor, weights: Tensor, neighbours: Tensor, rounds: int = 1, strength: float = 1.0
) -> Tensor:
    """Raise each score by its similarity to the sources that reach it (7.2)."""
    gain = torch.where(neighbours, 1 + strength * widen(weights), 1).prod(-2)
    return (widen(scores) * gain**rounds).to(scores.dtype)


def banish(scores: Tensor, neighbours: Tensor, rounds: int = 1) -> Tensor:
    """Send every neighbour of a source to the end of the ranking (7.2)."""
    return scores.masked_fill(neighbours.any(-2) & (rounds > 0), -torch.inf)


def concatenate_heads(vectors: Tensor) -> Tensor:
    """Put the heads of each token side by side (4.1)."""
    return vectors.movedim(-3, -2).flatten(-2)


def graphkv_refine(
    scores: Tensor, keys: Tensor, keep: int, count: int, protected: Tensor | None = None, *,
    queries: Tensor | None = None, values: Tensor | None = None, kind: str = "kk",
    fraction: float = 0.3, rounds: int = 1, strength: float = 1.0, rule: str = "product",
    signal: str = "decay", per_head: bool = False, spare_sources: bool = False,
    clamp: bool = False, exclude_window: bool = False, adaptive: bool = False,
) -> Tensor:  # fmt: skip
    """Build the graph of each layer, send the signal, hand back the scores (4.1)."""
    aside = torch.zeros_like(scores, dtype=torch.bool) if protected is None else protected
    vectors = {"keys": keys, "values": values}
    vectors["queries"] = None if queries is None else group_mean(queries, keys)
    vectors = {name: x for name, x in vectors.items() if x is not None}
    refined = widen(scores).clone()
    if not scores.numel():
        return scores.clone()
    if not per_head:  # a layer has one graph, of whole rows of its cache
        refined, aside = refined.mean(-2), aside.any(-2)
        vectors = {name: concatenate_heads(x) for name, x in vectors.items()}
    count = neighbour_count(count, scores.shape[-1]) if adaptive else count
    for graph in np.ndindex(refined.shape[:-1]):
        score, shut = refined[graph], aside[graph]
        window = int(shut.sum()) if exclude_window else 0
        most = min(source_count(keep, fraction, window), int((~shut).sum()))
        sources = source_tokens(score, most, shut)
        nodes = {name: x[graph] for name, x in vectors.items()}
        weights = edges(**nodes, sources=sources, kind=kind, clamp=clamp)
        reached = neighbours(weights, sources, count, shut, spare_sources)
        if signal == "decay":
            refined[graph] = decay(score, weights, reached, rounds, strength, rule)
        elif signal == "enhance":
            refined[graph] = enhance(score, weights, reached, rounds, strength)
        else:
            refined[graph] = banish(score, reached, rounds)
    refined = refined if per_head else refined[..., None, :].expand(scores.shape)
    return refined.to(scores.dtype).contiguous()
