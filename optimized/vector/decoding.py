"""Compression while decoding, all rows and heads at once."""

import torch
from torch import Tensor

from optimized.vector.compress import best, ranked
from optimized.vector.evict import evict
from optimized.vector.refinement import refine_rows
from reference.compress import compared
from reference.decoding import DecodingCache, DecodingConfig, DecodingView, addable
from reference.evict import DenseCache
from reference.graphkv.refine import GraphSettings
from reference.precision import widen
from reference.rules import AXES
from reference.scorers.scored import Scored


def decoding_start(
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    config: DecodingConfig,
    valid: Tensor | None = None,
) -> DecodingCache:
    *batch, _, tokens = scores.shape
    place = torch.arange(tokens, device=keys.device).expand(*batch, tokens)
    seen = torch.full(batch, tokens, device=keys.device)
    if valid is not None:
        seen = valid.sum(-1).expand(batch)
        place = (place - tokens + seen[..., None]).clamp(min=-1)
    positions = place[..., None, :].expand(scores.shape)
    view = DecodingView(keys, values, widen(scores), positions, positions >= 0)
    return _shrunk(view, seen.clone(), config)


def decoding_append(
    cache: DecodingCache,
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    mass: Tensor | None = None,
) -> DecodingCache:
    if mass is not None:
        cache = _accumulate(cache, mass)
    if keys.shape[-2] == 0:
        return cache
    interval = cache.config.interval
    pieces = [interval - cache.pending_scores.shape[-1]]
    while sum(pieces) < keys.shape[-2]:
        pieces.append(interval)
    pieces[-1] -= sum(pieces) - keys.shape[-2]
    parts = keys.split(pieces, -2), values.split(pieces, -2), widen(scores).split(pieces, -1)
    for more_keys, more_values, more_scores in zip(*parts, strict=True):
        cache = cache._replace(
            pending_keys=torch.cat([cache.pending_keys, more_keys], -2),
            pending_values=torch.cat([cache.pending_values, more_values], -2),
            pending_scores=torch.cat([cache.pending_scores, more_scores], -1),
            seen=cache.seen + more_scores.shape[-1],
        )
        if cache.pending_scores.shape[-1] == interval:
            cache = _shrunk(decoding_read(cache), cache.seen, cache.config)
    return cache


def decoding_read(cache: DecodingCache) -> DecodingView:
    stored, present, pending = cache.stored, _present(cache), cache.pending_scores.shape
    come = cache.seen[..., None] - pending[-1] + torch.arange(pending[-1], device=present.device)
    return DecodingView(
        torch.cat([_laid_out(stored.keys, present), cache.pending_keys], -2),
        torch.cat([_laid_out(stored.values, present), cache.pending_values], -2),
        torch.cat([_laid_out(widen(cache.scores), present), cache.pending_scores], -1),
        torch.cat(
            [_laid_out(stored.positions, present, -1), come[..., None, :].expand(pending)], -1
        ),
        torch.cat([present, present.new_ones(pending)], -1),
    )


def _present(cache: DecodingCache) -> Tensor:
    """Mark the stored entries of each head, the shorter ones' at the right end."""
    heads = cache.pending_scores.shape[:-1]
    if isinstance(cache.stored, DenseCache):
        return torch.ones_like(cache.stored.positions, dtype=torch.bool)
    counts = cache.stored.offsets.diff().view(*heads, 1)
    longest = int(counts.amax())
    return torch.arange(longest, 0, -1, device=counts.device) <= counts


def _laid_out(part: Tensor, present: Tensor, blank: int = 0) -> Tensor:
    """Lay out stored entries, blanks before those of the shorter heads."""
    if part.shape[: present.ndim] == present.shape:
        return part
    laid = part.new_full((*present.shape, *part.shape[1:]), blank)
    laid[present] = part
    return laid


def _accumulate(cache: DecodingCache, mass: Tensor) -> DecodingCache:
    stored = _present(cache)
    pending = cache.pending_scores.shape[-1]
    older = stored.shape[-1]
    present = torch.cat([stored, stored.new_ones(*stored.shape[:-1], pending)], -1)
    addable(mass, present, cache.config)
    mass = widen(mass)
    return cache._replace(
        scores=widen(cache.scores) + mass[..., :older][stored].view(cache.scores.shape),
        pending_scores=cache.pending_scores + mass[..., older:],
    )


def _shrunk(view: DecodingView, seen: Tensor, config: DecodingConfig) -> DecodingCache:
    """Compress all that is in view to the target."""
    kept = _survivors(view, seen, config)
    left = evict(view.keys, view.values, kept)
    shape = left.positions.shape
    *heads, _, width = view.keys.shape
    return DecodingCache(
        config=config,
        stored=left._replace(positions=view.positions[kept].view(shape)),
        scores=view.scores[kept].view(shape),
        pending_keys=view.keys.new_empty(*heads, 0, width),
        pending_values=view.values.new_empty(*heads, 0, width),
        pending_scores=view.scores.new_empty(*heads, 0),
        seen=seen,
    )


def _survivors(view: DecodingView, seen: Tensor, config: DecodingConfig) -> Tensor:
    scores, place, here = view.scores, view.positions, view.present
    vectors = compared(config.refinement, view.keys, view.values, None)
    if config.scope == "model":
        scores, place, here = (x.movedim(0, -3) for x in (scores, place, here))
        vectors = {name: x.movedim(0, -4) for name, x in vectors.items()}
        seen = seen[0] if len(seen) else seen.sum(0)
    between = [1] * (scores.ndim - seen.ndim)
    heads = scores.shape[seen.ndim : -1].numel()
    window = torch.full_like(seen, config.recent or 0)
    if config.recent is None:
        held = here.flatten(seen.ndim).sum(-1) // max(1, heads)
        window = (seen if config.length == "seen" else held) // 50
    window = window.clamp(max=config.target - config.sinks)
    shielded = (place < config.sinks) | (place >= (seen - window).view(*seen.shape, *between))
    shielded = shielded & here
    one = Scored(scores.masked_fill(~here, 0), shielded | ~here)
    refined = _refined(one, place, here, seen, vectors, config)
    pools = here.flatten(-AXES[config.scope])
    full = config.target * scores.shape[-AXES[config.scope] : -1].numel()
    budgets = pools.sum(-1).clamp(max=full)
    kept = best(ranked(refined, ~here), shielded, budgets, config.scope)
    return kept.movedim(-3, 0) if config.scope == "model" else kept


def _refined(
    one: Scored,
    place: Tensor,
    here: Tensor,
    seen: Tensor,
    vectors: dict[str, Tensor],
    config: DecodingConfig,
) -> Tensor:
    """Refine among the neighbours that the cache or the text gives each token."""
    keep = torch.full_like(seen, config.target)
    padding = (~here.flatten(seen.ndim, -2).any(-2)).sum(-1)
    budget = keep, (keep, seen), config.ratio, padding
    if not config.original_positions or isinstance(config.refinement, GraphSettings):
        return refine_rows(one, config.refinement, vectors, *budget)
    length = int(seen.max()) if seen.numel() else 0
    line, where = (*here.shape[:-1], length + 1), place.masked_fill(~here, length)
    scores = one.scores.new_zeros(line).scatter(-1, where, one.scores)
    outside = here.new_ones(line).scatter(-1, where, one.protected)
    text = Scored(scores[..., :length], outside[..., :length])
    refined = refine_rows(text, config.refinement, vectors, *budget)
    if not length:
        return one.scores
    return refined.gather(-1, place.clamp(min=0))
