"""Compression while decoding, all rows and heads at once."""

import torch
from torch import Tensor

import reference
from optimized._rebind import rebind
from optimized.vector.compress import Rows, best, rank_padding_last, refine_rows
from optimized.vector.evict import evict
from reference import decoding_compression
from reference.compress import vectors_compared
from reference.contract.preconditions import AXES
from reference.decoding_compression import DecodingConfig, DecodingView, scatter_to_positions
from reference.graphkv.refine import GraphSettings
from reference.hubkv.refine import at_ends
from reference.scorers.scored import Scored


def survivors(view: DecodingView, seen: Tensor, config: DecodingConfig) -> Tensor:
    scores, place, here = view.scores, view.positions, view.present
    vectors = vectors_compared(config.refinement, view.keys, view.values, None)
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
    tokens, recent = seen.view(*seen.shape, *between), window.view(*seen.shape, *between)
    shielded = here & at_ends(place, tokens, config.sinks, recent)
    one = Scored(scores.masked_fill(~here, 0), shielded | ~here)
    real = here.flatten(seen.ndim, -2).any(-2).sum(-1)
    refined = _refined(Rows(one, vectors, None, real), place, seen, config)
    pools = here.flatten(-AXES[config.scope])
    full = config.target * scores.shape[-AXES[config.scope] : -1].numel()
    budgets = pools.sum(-1).clamp(max=full)
    kept = best(rank_padding_last(refined, ~here), shielded, budgets, config.scope)
    return kept.movedim(-3, 0) if config.scope == "model" else kept


def _refined(rows: Rows, place: Tensor, seen: Tensor, config: DecodingConfig) -> Tensor:
    """Return scores refined with neighbours in the cache, or in the original text."""
    stay = torch.full_like(seen, config.target), 1, seen, config.ratio
    if not config.original_positions or isinstance(config.refinement, GraphSettings):
        return refine_rows(rows, config.refinement, *stay)
    if not (length := int(seen.max()) if seen.numel() else 0):
        return rows.scored.scores
    text = rows._replace(scored=scatter_to_positions(rows.scored, place, length))
    return refine_rows(text, config.refinement, *stay).gather(-1, place.clamp(min=0))


compress_to_target = rebind(
    decoding_compression.compress_to_target, survivors=survivors, evict=evict
)
decoding_start = rebind(reference.decoding_start, compress_to_target=compress_to_target)
decoding_append = rebind(reference.decoding_append, compress_to_target=compress_to_target)
