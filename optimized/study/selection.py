"""One system on one prompt: which entries stay, or what is stored in place of all of them."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from optimized import Scored
from optimized.models.eviction import of_pools
from optimized.models.prefill import Prefilled
from optimized.models.scorer import Scores
from optimized.models.systems import System, compressor, hex_settings, refinement


def kept_entries(
    system: System, prompt: Prefilled, scores: Scores, ratio: float, reading: str, kv: ModuleType
) -> Tensor:
    """Return which entries a system keeps, layers first, by the scores of its scorer."""
    layers = [layer.whole for layer in prompt.cache.whole_layers()]
    keys, values = map(torch.stack, zip(*layers, strict=True))
    raw, protected = map(torch.stack, zip(*scores.scored, strict=True))
    prefix, told = compressor(system, reading)
    if told["refinement"] is not None and bool((raw < 0).any()):
        raw = kv.shift_scores(raw)
    if scores.budgets is not None:
        told["keep"] = of_pools(scores.budgets, keys.shape[-3], told.get("scope"))
    else:
        told["ratio"] = ratio
    return getattr(kv, f"{prefix}select")(keys, values, Scored(raw, protected), **told)


def quantised(
    system: System, keys: Tensor, values: Tensor, mass: Tensor | None, reading: str, kv: ModuleType
) -> tuple[Any, tuple[Tensor, Tensor]]:
    """Store a layer as a quantiser does; return what it holds, and what is read of that."""
    assert system.store is not None
    method, _, bits = system.store.partition("-")
    if method == "kivi":
        held = kv.kivi_prefill(keys, values, bits=int(bits))
        return held, kv.kivi_read(held)
    if method == "gear":
        held = kv.gear_prefill(keys, values)
        return held, kv.gear_read(held, exact_outliers=reading == "remedied")
    if mass is None:
        mass = keys.new_zeros(keys.shape[:-1], dtype=torch.float32)
    scored = Scored(mass, torch.zeros_like(mass, dtype=torch.bool))
    settings, refined = hex_settings(system, reading), refinement(system, reading)
    held = kv.compress(keys, values, scored, store=settings, refinement=refined)
    return held, kv.hex_read(held)
