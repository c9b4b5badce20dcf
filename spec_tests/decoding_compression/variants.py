"""Other correct ways to compress while decoding: token by token, row after row."""

from itertools import product
from typing import Any

import torch

import reference
from spec_tests.evict.variants import by_boolean_indexing
from spec_tests.retain.variants import sort_each_pool
from spec_tests.variants.registry import register_variant


def wide(scores):
    """Return scores in float32, or unchanged if they are float64."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def refined_row(scores, outside, place, tokens, vectors, config):
    """Refine a row, where neighbours are those in the cache or those in the text."""
    settings, target = config.refinement, config.target
    ratio = max(0.0, 1 - target / max(1, tokens)) if config.ratio is None else config.ratio
    if not config.original_positions or isinstance(settings, reference.GraphSettings):
        scored = reference.Scored(scores, outside)
        return reference.refine(scored, settings, keep=target, ratio=ratio, **vectors)
    text = torch.zeros(*scores.shape[:-1], tokens, dtype=scores.dtype)
    others = torch.ones(text.shape, dtype=torch.bool)
    for *head, i in (place >= 0).nonzero().tolist():
        spot = (*head, int(place[(*head, i)]))
        text[spot], others[spot] = scores[(*head, i)], outside[(*head, i)]
    scored = reference.Scored(text, others)
    refined = reference.refine(scored, settings, keep=target, ratio=ratio)
    return refined.gather(-1, place.clamp(min=0))


def shrink(view, seen, config):
    """Keep the sinks of each pool, the recent window, and the best of the rest."""
    kept, scope = torch.zeros_like(view.present), config.scope
    layers = [slice(None)] * (scope == "model")
    for row in product(*map(range, kept.shape[len(layers) : -2])):
        at = (*layers, *row)
        start = int((~view.present[at].flatten(0, -2).any(0)).sum())
        at = (*at, ..., slice(start, None))
        here, place = view.present[at], view.positions[at]
        if not here.numel():
            continue
        tokens, heads = int(seen[at[:-2]].max()), here.shape[:-1].numel()
        length = tokens if config.length == "seen" else int(here.sum()) // heads
        window = length // 50 if config.recent is None else config.recent
        window = min(window, config.target - config.sinks)
        shield = here & ((place < config.sinks) | (place >= tokens - window))
        vectors = {}
        if isinstance(config.refinement, reference.GraphSettings):
            keys, values = (x[(*at[:-1], slice(start, None), slice(None))] for x in view[:2])
            vectors = dict(keys=keys, values=values)
        scores = refined_row(
            view.scores[at], shield | ~here, place, tokens, vectors, config
        )  # fmt: skip
        # missing entries come last, after those that a signal evicted
        scores = scores.clamp(min=torch.finfo(scores.dtype).min).masked_fill(~here, -torch.inf)
        axes = {"head": 1, "layer": 2, "model": 3}[scope]
        pools = here.flatten(-axes)
        full = config.target * here.shape[-axes:-1].numel()
        kept[at] = sort_each_pool(scores, shield, keep=pools.sum(-1).clamp(max=full), scope=scope)
    left = by_boolean_indexing(view.keys, view.values, kept)
    none = view.keys[..., :0, :].clone(), view.values[..., :0, :].clone()
    shape = left.positions.shape
    return reference.DecodingCache(
        config, left._replace(positions=view.positions[kept].view(shape)),
        view.scores[kept].view(shape), *none, view.scores[..., :0].clone(), seen,
    )  # fmt: skip


@register_variant("decoding_start")
def all_held_then_shrunk(keys, values, scores, config, valid=None):
    """Number the real tokens of each row, and shrink all rows once."""
    real = torch.ones_like(scores, dtype=torch.bool)
    if valid is not None:
        real = real & valid[..., None, :]
    positions = (real.cumsum(-1) - 1).masked_fill(~real, -1)
    seen = torch.full(scores.shape[:-2], scores.shape[-1])
    if valid is not None:
        seen = valid.sum(-1).expand(seen.shape)
    return shrink(reference.DecodingView(keys, values, wide(scores), positions, real), seen, config)


@register_variant("decoding_append")
def token_by_token(cache, keys, values, scores, mass=None):
    """Add the mass, then one token at a time; shrink after every full interval."""
    if mass is not None:
        here, mass = head_by_head(cache).present, wide(mass)
        older = mass.shape[-1] - cache.pending_scores.shape[-1]
        drawn = mass[..., :older][here[..., :older]].view(cache.scores.shape)
        cache = cache._replace(
            scores=wide(cache.scores) + drawn,
            pending_scores=cache.pending_scores + mass[..., older:],
        )
    for t in range(keys.shape[-2]):
        cache = cache._replace(
            pending_keys=torch.cat([cache.pending_keys, keys[..., t : t + 1, :]], -2),
            pending_values=torch.cat([cache.pending_values, values[..., t : t + 1, :]], -2),
            pending_scores=torch.cat([cache.pending_scores, wide(scores[..., t : t + 1])], -1),
            seen=cache.seen + 1,
        )
        if cache.pending_keys.shape[-2] == cache.config.interval:
            cache = shrink(head_by_head(cache), cache.seen, cache.config)
    return cache


@register_variant("decoding_read")
def head_by_head(cache):
    """Write each head's entries at the right end of its row, followed by the pending ones."""
    stored, (*heads, pending) = cache.stored, cache.pending_scores.shape
    scores, places = wide(cache.scores), stored.positions
    count = torch.Size(heads).numel()
    if hasattr(stored, "offsets"):
        spans = [slice(*ends) for ends in zip(stored.offsets, stored.offsets[1:], strict=False)]
        flat = [stored.keys, stored.values, scores, places]
        parts = [[x[span] for span in spans] for x in flat]
    else:
        parts = [list(x.flatten(0, len(heads) - 1)) if count else [] for x in
                 (stored.keys, stored.values, scores, places)]  # fmt: skip
    most = max((len(x) for x in parts[3]), default=0 if count else places.shape[-1])
    new_places = cache.seen[..., None] - pending + torch.arange(pending)
    news = cache.pending_keys, cache.pending_values, wide(cache.pending_scores)
    news = (*news, new_places[..., None, :].expand(*heads, pending))
    found: list[Any] = []
    for part, new, blank in zip(parts, news, (0, 0, 0, -1), strict=True):
        room = new.new_full((count, most, *new.shape[len(heads) + 1 :]), blank)
        for row, x in zip(room, part, strict=True):
            row[most - len(x) :] = x
        found.append(torch.cat([room.view(*heads, *room.shape[1:]), new], len(heads)))
    held, read, ranked, positions = found
    return reference.DecodingView(held, read, ranked, positions, positions >= 0)
