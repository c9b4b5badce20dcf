"""What a quantiser stores in place of a layer, and what is read of that."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from optimized import Scored
from optimized.models.systems import System, hex_settings, refinement


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
