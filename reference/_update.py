"""The steps of a decoding cache: tokens wait, scores grow, the best survive."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from reference import compress_errors as refuse
from reference.compress import compared
from reference.evict import RaggedCache, evict
from reference.graphkv.refine import GraphSettings
from reference.precision import widen
from reference.refinement import refine
from reference.retain import AXES, retain
from reference.scorers.scored import Scored

if TYPE_CHECKING:
    from reference.decoding import DecodingCache, DecodingConfig, DecodingView


def bounds_of(cache: DecodingCache) -> Tensor:
    """Return where each head's entries begin and end in the flattened store."""
    stored = cache.stored
    if isinstance(stored, RaggedCache):
        return stored.offsets
    heads = cache.pending_scores.shape[:-1].numel()
    return torch.arange(heads + 1, device=stored.keys.device) * stored.positions.shape[-1]


def accumulate(cache: DecodingCache, mass: Tensor, present: Tensor) -> DecodingCache:
    """Add to the raw scores of what is held."""
    refuse.added(mass, present, cache.config)
    mass = widen(mass)
    older = present.shape[-1] - cache.pending_scores.shape[-1]
    entries = mass[..., :older][present[..., :older]]
    return cache._replace(
        scores=widen(cache.scores) + entries.view(cache.scores.shape),
        pending_scores=cache.pending_scores + mass[..., older:],
    )


def hold(cache: DecodingCache, keys: Tensor, values: Tensor, scores: Tensor) -> DecodingCache:
    """Let new tokens wait for the next compression."""
    return cache._replace(
        pending_keys=torch.cat([cache.pending_keys, keys], -2),
        pending_values=torch.cat([cache.pending_values, values], -2),
        pending_scores=torch.cat([cache.pending_scores, widen(scores)], -1),
        seen=cache.seen + keys.shape[-2],
    )


def shrink(cache: DecodingCache, view: DecodingView) -> DecodingCache:
    """Compress all that is held to the target."""
    kept = survivors(view, cache.seen, cache.config)
    left, none = evict(view.keys, view.values, kept), slice(0, 0)
    shape = left.positions.shape
    return cache._replace(
        stored=left._replace(positions=view.positions[kept].view(shape)),
        scores=view.scores[kept].view(shape),
        pending_keys=cache.pending_keys[..., none, :].clone(),
        pending_values=cache.pending_values[..., none, :].clone(),
        pending_scores=cache.pending_scores[..., none].clone(),
    )


def survivors(view: DecodingView, seen: Tensor, config: DecodingConfig) -> Tensor:
    """Mark the entries that stay: protected positions, then the best by their refined scores."""
    scores, positions, present = view.scores, view.positions, view.present
    vectors = compared(config.refinement, view.keys, view.values, None)
    if config.scope == "model":  # rows first, then their layers
        scores, positions, present = (x.movedim(0, -3) for x in (scores, positions, present))
        vectors = {name: x.movedim(0, -4) for name, x in vectors.items()}
        seen = seen[0] if len(seen) else seen
    kept = torch.zeros_like(present)
    axes = max(2, AXES[config.scope])
    for row in product(*map(range, present.shape[:-axes])):
        if not present[row].any():
            continue
        start = int((~present[row]).sum(-1).min())
        here, place = present[row][..., start:], positions[row][..., start:]
        tokens, heads = int(seen[row]), here.shape[:-1].numel()
        length = tokens if config.length == "seen" else int(here.sum()) // heads
        window = length // 50 if config.recent is None else config.recent
        window = min(window, config.target - config.sinks)
        shielded = here & ((place < config.sinks) | (place >= tokens - window))
        one = Scored(scores[row][..., start:], shielded | ~here)
        beside = {name: x[row][..., start:, :] for name, x in vectors.items()}
        refined = _refined(one, place, here, tokens, beside, config)
        # evicted by a signal is still better than not there
        ranked = refined.clamp(min=torch.finfo(refined.dtype).min).masked_fill(~here, -torch.inf)
        pools = here.flatten(-AXES[config.scope])
        full = config.target * (pools.shape[-1] // here.shape[-1])
        budgets = pools.sum(-1).clamp(max=full)
        kept[row][..., start:] = retain(ranked, shielded, keep=budgets, scope=config.scope)
    return kept.movedim(-3, 0) if config.scope == "model" else kept


def _refined(
    one: Scored,
    place: Tensor,
    here: Tensor,
    tokens: int,
    beside: dict[str, Tensor],
    config: DecodingConfig,
) -> Tensor:
    """Refine one row, among the neighbours that the cache or the text gives each token."""
    ratio = max(0.0, 1 - config.target / max(1, tokens)) if config.ratio is None else config.ratio
    if not config.original_positions or isinstance(config.refinement, GraphSettings):
        return refine(one, config.refinement, keep=config.target, ratio=ratio, **beside)
    text = Scored(
        one.scores.new_zeros(*one.scores.shape[:-1], tokens),
        torch.ones(*one.scores.shape[:-1], tokens, dtype=torch.bool, device=here.device),
    )
    for head in product(*map(range, here.shape[:-1])):
        where = place[head][here[head]]
        text.scores[head][where] = one.scores[head][here[head]]
        text.protected[head][where] = one.protected[head][here[head]]
    refined = refine(text, config.refinement, keep=config.target, ratio=ratio)
    back = refined.new_zeros(one.scores.shape)
    for head in product(*map(range, here.shape[:-1])):
        back[head][here[head]] = refined[head][place[head][here[head]]]
    return back
