"""Compression while decoding, entry by entry on Python lists."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reference import DecodingConfig

Head = tuple[int, int]  # layer, head
Held = dict[Head, list[tuple[int, float]]]  # position, raw score; oldest first
Refine = Callable[[Tensor, float, Tensor], Tensor]  # scores of heads, ratio, excluded


def simulate(prompt: Tensor, decoded: Tensor, config: DecodingConfig, refine: Refine) -> Any:
    """Return the entries of each head of one row after a prompt and some decoding.

    Scores are [layers, heads, tokens]. In the scope `"model"` the layers share a budget.
    """
    layers, heads, start = prompt.shape
    names = [(layer, head) for layer in range(layers) for head in range(heads)]
    held: Held = {name: list(enumerate(prompt[name].tolist())) for name in names}
    held, pending, seen = shrink(held, start, config, refine), 0, start
    for t in range(decoded.shape[-1]):
        for name in names:
            held[name].append((seen, decoded[(*name, t)].item()))
        pending, seen = pending + 1, seen + 1
        if pending == config.interval:
            held, pending = shrink(held, seen, config, refine), 0
    return held


def shrink(held: Held, seen: int, config: DecodingConfig, refine: Refine) -> Held:
    """Compress all heads, layer by layer unless the layers share a budget."""
    if config.scope == "model":
        return pooled(held, seen, config, refine)
    kept: Held = {}
    for layer in {name[0] for name in held}:
        part = {name: entries for name, entries in held.items() if name[0] == layer}
        kept |= pooled(part, seen, config, refine)
    return kept


def pooled(held: Held, seen: int, config: DecodingConfig, refine: Refine) -> Held:
    """Compress heads that are refined together; in the scope `"head"` each is its own pool."""
    length = seen
    if config.length == "held":
        length = sum(len(entries) for entries in held.values()) // max(1, len(held))
    recent = length // 50 if config.recent is None else config.recent
    recent = min(recent, config.target - config.sinks)
    ratio = config.ratio
    if ratio is None:
        ratio = max(0.0, 1 - config.target / max(1, seen))

    def protected(position: int) -> bool:
        return position < config.sinks or position >= seen - recent

    refined: dict[tuple[Head, int], float] = {}
    for layer in sorted({name[0] for name in held}):
        mine = sorted(name for name in held if name[0] == layer)
        span = max([len(held[name]) for name in mine])
        if config.original_positions:
            span = seen
        scores, outside = torch.zeros(len(mine), span), torch.ones(len(mine), span).bool()
        for row, name in enumerate(mine):
            for slot, (position, score) in enumerate(held[name]):
                column = position if config.original_positions else slot
                scores[row, column], outside[row, column] = score, protected(position)
        z = refine(scores, ratio, outside)
        for row, name in enumerate(mine):
            for slot, (position, _) in enumerate(held[name]):
                column = position if config.original_positions else slot
                refined[name, position] = z[row, column].item()
    pools = [[name] for name in held] if config.scope == "head" else [sorted(held)]
    stay: set[tuple[Head, int]] = set()
    for pool in pools:
        entries = [(name, position) for name in pool for position, _ in held[name]]
        entries.sort(key=lambda e: (not protected(e[1]), -refined[e] * (not protected(e[1])), e))
        stay |= set(entries[: config.target * len(pool)])
    return {
        name: [entry for entry in entries if (name, entry[0]) in stay]
        for name, entries in held.items()
    }
