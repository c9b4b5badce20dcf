"""Another correct way to read a cache while decoding: head by head."""

from typing import Any

import torch

import reference
from reference.precision import widen
from spec_tests.variants.registry import register_variant


@register_variant("decoding_read")
def head_by_head(cache):
    """Write each head's entries at the right end of its row, followed by the pending ones."""
    stored, (*heads, pending) = cache.stored, cache.pending_scores.shape
    scores, places = widen(cache.scores), stored.positions
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
    news = cache.pending_keys, cache.pending_values, widen(cache.pending_scores)
    news = (*news, new_places[..., None, :].expand(*heads, pending))
    found: list[Any] = []
    for part, new, blank in zip(parts, news, (0, 0, 0, -1), strict=True):
        room = new.new_full((count, most, *new.shape[len(heads) + 1 :]), blank)
        for row, x in zip(room, part, strict=True):
            row[most - len(x) :] = x
        found.append(torch.cat([room.view(*heads, *room.shape[1:]), new], len(heads)))
    held, read, ranked, positions = found
    return reference.DecodingView(held, read, ranked, positions, positions >= 0)
