"""One system on one prompt: which entries stay, or what is stored in place of all of them."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized import Scored
from optimized.models.clock import Clock
from optimized.models.prefill import Prefilled
from optimized.models.scorer import Scores, ends
from optimized.models.systems import System, hex_settings, refinement

Layers = list[tuple[Tensor, Tensor]]

EDGES = 1 << 21
"""Edges of graphs at one time: as many as a cache holds."""


class Read(NamedTuple):
    """Keys and values to attend to, and the bytes that are stored for them."""

    layers: Layers
    nbytes: int


def kept_entries(
    system: System,
    prompt: Prefilled,
    scores: Scores,
    ratio: float,
    reading: str,
    kv: ModuleType,
    clock: Clock,
) -> Tensor:
    """Return which entries a system keeps, layers first, by the scores of its scorer."""
    layers = [layer.whole for layer in prompt.cache.whole_layers()]
    keys = torch.stack([keys for keys, _ in layers])
    values = torch.stack([values for _, values in layers])
    raw = torch.stack([one.scores for one in scores.scored])
    protected = torch.stack([one.protected for one in scores.scored])
    settings = refinement(system, reading)
    if system.refinement == "hubkv":
        protected = protected | ends(kv, keys[0], None)
    if system.refinement == "graphkv" and not settings.per_head:
        protected = protected.any(-2, keepdim=True).expand(protected.shape)
    tokens, heads = keys.shape[-2], keys.shape[-3]
    budgets = scores.budgets
    if budgets is None:
        shape = (len(layers), keys.shape[1])
        budgets = torch.full(shape, kv.kept_count(tokens, ratio), device=keys.device)
    with clock.at("refining"):
        refined = raw
        if settings is not None:
            if bool((raw < 0).any()):
                raw = kv.shift_scores(raw)
            vectors = {"keys": keys, "values": values} if system.refinement == "graphkv" else {}
            refined = torch.empty_like(raw)
            for place, keep in groups(budgets, tokens * heads):
                some = {name: whole[place] for name, whole in vectors.items()}
                scored = Scored(raw[place], protected[place])
                refined[place] = kv.refine(scored, settings, keep=keep, ratio=ratio, **some)
    with clock.at("selecting"):
        if scores.budgets is None:
            return kv.retain(refined, protected, ratio=ratio, scope=system.scope)
        if system.scope == "layer":
            return kv.retain(refined, protected, keep=budgets * heads, scope="layer")
        each = budgets[..., None].expand(protected.shape[:-1])
        return kv.retain(refined, protected, keep=each, scope="head")


def groups(budgets: Tensor, entries: int) -> Iterator[tuple[Any, int]]:
    """Walk through the budgets: which layers and rows have each of them, some at a time.

    A graph compares up to as many tokens as the budget with each entry of its layer and row.
    """
    room = EDGES if budgets.device.type == "cpu" else 256 * EDGES
    for keep in budgets.unique().tolist():
        for some in (budgets == keep).nonzero().split(max(1, room // max(1, keep * entries))):
            yield some.unbind(-1), keep


def stored(
    system: System, prompt: Prefilled, mass: list[Tensor] | None, reading: str, kv: ModuleType
) -> Read:
    """Store a whole prompt as a quantiser does, and read it back."""
    read, nbytes = [], 0
    for index, layer in enumerate(prompt.cache.whole_layers()):
        one = None if mass is None else mass[index]
        held, restore = store(system, *layer.whole, one, reading, kv)
        nbytes += kv.stored_bytes(held)
        read.append(restore(held))
    return Read(read, nbytes)


def store(
    system: System, keys: Tensor, values: Tensor, mass: Tensor | None, reading: str, kv: ModuleType
) -> tuple[Any, Callable[[Any], tuple[Tensor, Tensor]]]:
    """Return what a system stores of one layer, and the function that reads it."""
    assert system.store is not None
    method, _, bits = system.store.partition("-")
    if method == "kivi":
        return kv.kivi_prefill(keys, values, bits=int(bits)), kv.kivi_read
    if method == "gear":
        exact = reading == "remedied"
        return kv.gear_prefill(keys, values), lambda held: kv.gear_read(held, exact)
    if mass is None:
        mass = keys.new_zeros(keys.shape[:-1], dtype=torch.float32)
    scored = Scored(mass, torch.zeros_like(mass, dtype=torch.bool))
    settings, refined = hex_settings(system, reading), refinement(system, reading)
    held = kv.compress(keys, values, scored, store=settings, refinement=refined)
    return held, kv.hex_read
