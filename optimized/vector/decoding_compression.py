"""Compression while decoding, all rows and heads at once."""

import torch
from torch import Tensor

from optimized.vector.compress import Rows, best, rank_padding_last, refine_rows
from optimized.vector.evict import evict
from reference.compress import vectors_compared
from reference.contract.preconditions import AXES
from reference.decoding_compression import (
    DecodingCache,
    DecodingConfig,
    DecodingView,
    add_mass,
    add_pending,
    decoding_read,
    scatter_to_positions,
)
from reference.graphkv.refine import GraphSettings
from reference.hubkv.refine import at_ends
from reference.precision import widen
from reference.scorers.scored import Scored


def survivors(view: DecodingView, seen: Tensor, config: DecodingConfig) -> Tensor:
    scores, positions, here = view.scores, view.positions, view.present
    vectors = vectors_compared(config.refinement, view.keys, view.values, None)
    if config.scope == "model":
        scores, positions, here = (x.movedim(0, -3) for x in (scores, positions, here))
        vectors = {name: x.movedim(0, -4) for name, x in vectors.items()}
        seen = seen[0] if len(seen) else seen.sum(0)
    between = [1] * (scores.ndim - seen.ndim)
    heads = scores.shape[seen.ndim : -1].numel()
    window = torch.full_like(seen, config.recent or 0)
    if config.recent is None:
        entries_of_head = here.flatten(seen.ndim).sum(-1) // max(1, heads)
        window = (seen if config.length == "seen" else entries_of_head) // 50
    window = window.clamp(max=config.target - config.sinks)
    tokens, recent = seen.view(*seen.shape, *between), window.view(*seen.shape, *between)
    shielded = here & at_ends(positions, tokens, config.sinks, recent)
    masked = Scored(scores.masked_fill(~here, 0), shielded | ~here)
    real = here.flatten(seen.ndim, -2).any(-2).sum(-1)
    refined = _refined(Rows(masked, vectors, None, real), positions, seen, config)
    pools = here.flatten(-AXES[config.scope])
    full = config.target * scores.shape[-AXES[config.scope] : -1].numel()
    budgets = pools.sum(-1).clamp(max=full)
    kept = best(rank_padding_last(refined, ~here), shielded, budgets, config.scope)
    return kept.movedim(-3, 0) if config.scope == "model" else kept


def _refined(rows: Rows, positions: Tensor, seen: Tensor, config: DecodingConfig) -> Tensor:
    """Return scores refined with neighbours in the cache, or in the original text."""
    stay = torch.full_like(seen, config.target), 1, seen, config.ratio
    if not config.original_positions or isinstance(config.refinement, GraphSettings):
        return refine_rows(rows, config.refinement, *stay)
    if not (length := int(seen.max()) if seen.numel() else 0):
        return rows.scored.scores
    text = rows._replace(scored=scatter_to_positions(rows.scored, positions, length))
    return refine_rows(text, config.refinement, *stay).gather(-1, positions.clamp(min=0))


def compress_to_target(view: DecodingView, seen: Tensor, config: DecodingConfig) -> DecodingCache:
    kept = survivors(view, seen, config)
    left = evict(view.keys, view.values, kept)
    shape = left.positions.shape
    return DecodingCache(
        config,
        left._replace(positions=view.positions[kept].view(shape)),
        view.scores[kept].view(shape),
        view.keys[..., :0, :].clone(),
        view.values[..., :0, :].clone(),
        view.scores[..., :0].clone(),
        seen,
    )


def decoding_start(
    keys: Tensor, values: Tensor, scores: Tensor, config: DecodingConfig, valid: Tensor | None
) -> DecodingCache:
    *batch, _, tokens = scores.shape
    valid = scores.new_ones(tokens, dtype=torch.bool) if valid is None else valid
    seen = valid.expand(*batch, tokens).sum(-1)
    position = torch.arange(tokens, device=seen.device) - tokens + seen[..., None]
    positions = position.clamp(min=-1)[..., None, :].expand(scores.shape)
    view = DecodingView(keys, values, widen(scores), positions, positions >= 0)
    return compress_to_target(view, seen, config)


def decoding_append(
    cache: DecodingCache, keys: Tensor, values: Tensor, scores: Tensor, mass: Tensor | None
) -> DecodingCache:
    if mass is not None:
        cache = add_mass(cache, mass)
    while keys.shape[-2]:
        room = cache.config.interval - cache.pending_scores.shape[-1]
        cache = add_pending(cache, keys[..., :room, :], values[..., :room, :], scores[..., :room])
        keys, values, scores = keys[..., room:, :], values[..., room:, :], scores[..., room:]
        if cache.pending_scores.shape[-1] == cache.config.interval:
            cache = compress_to_target(decoding_read(cache), cache.seen, cache.config)
    return cache
