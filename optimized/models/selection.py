"""One system on one prompt: which entries stay, or what is stored in place of all of them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from optimized import GraphSettings, Scored
from optimized.models.clock import Clock
from optimized.models.prefill import Prefilled
from optimized.models.scorer import Scores
from optimized.models.systems import System, hex_settings, refinement

Layers = list[tuple[Tensor, Tensor]]


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
    keys, values = map(torch.stack, zip(*layers, strict=True))
    raw, protected = map(torch.stack, zip(*scores.scored, strict=True))
    settings, scope = refinement(system, reading), system.scope
    if settings is not None and bool((raw < 0).any()):
        raw = kv.shift_scores(raw)
    how: dict[str, Any] = dict(ratio=ratio)
    if scores.budgets is not None:
        heads = keys.shape[-3]
        each = scores.budgets[..., None].expand(*scores.budgets.shape, heads)
        how = dict(keep=scores.budgets * heads if scope == "layer" else each)
    chosen = keys, values, Scored(raw, protected)
    with clock.at("selecting"):
        if system.refinement == "hubkv":
            return kv.hubkv_select(*chosen, refinement=settings, scope=scope, **how)
        alike = scope == "head" and scores.budgets is None
        if isinstance(settings, GraphSettings) and alike:
            length = None if settings.adaptive else 1000 * settings.count
            return kv.graphkv_select(*chosen, settings, length=length, **how)
        return kv.select(*chosen, refinement=settings, scope=scope, **how)


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
