"""Quantised caches of the entries that eviction keeps: `"snapkv>hex-4"` and the like."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.attending_layer import AttendingLayer
from optimized.models.attention import Softmax
from optimized.models.cache import AttendingCache
from optimized.models.eviction_cache import EvictionCache, EvictionLayer, ragged_without_positions
from optimized.models.layer import key_heads_and_width, reject_shared_keys
from optimized.models.quantized import QUANTIZERS, quantize, require_whole_groups, restore
from optimized.models.systems import System, hex_settings, refinement_settings, system_named


def require_storable(system: System, config: Any, alike: bool, reading: str) -> None:
    """Refuse heads of a width that a store behind `>` cannot quantise, before a prompt is read.

    Heads that keep equally many entries are stored together, others one by one. Where rows are
    `alike`, they have the same budgets.
    """
    assert system.then is not None
    reject_shared_keys(config)
    require_whole_groups(system.then, config, optimized)
    if not system.then.startswith("hex"):
        return
    heads, width = key_heads_and_width(config)
    channels = width * (heads if alike and system.scope == "head" else 1)
    settings = hex_settings(system_named(system.then), reading)
    try:
        optimized.biregular_degrees(settings.block, channels, settings.density)
    except ValueError as error:
        raise ValueError(
            f"model must have a multiple of {round(1 / settings.density)} channels, at least "
            f"{round(3 / settings.density)}, in what {system.name!r} stores together, got "
            f"{channels}: all heads where they keep equally many entries (@head, one prompt), else "
            "one head; 'kcvt-4' and 'gear' behind '>' take any number"
        ) from error


def quantize_tokens(
    system: System, keys: Tensor, values: Tensor, mass: Tensor | None, reading: str, kv: ModuleType
) -> Any:
    """Return the quantised form of some tokens."""
    assert system.store is not None
    if system.store in QUANTIZERS:
        return quantize(system.store, keys, values, kv)
    if mass is None:
        mass = keys.new_zeros(keys.shape[:-1], dtype=torch.float32)
    scored = Scored(mass, torch.zeros_like(mass, dtype=torch.bool))
    settings, refined = hex_settings(system, reading), refinement_settings(system, reading)
    return kv.compress(keys, values, scored, store=settings, refinement=refined)


def restore_tokens(
    system: System, codes: Any, reading: str, kv: ModuleType
) -> tuple[Tensor, Tensor]:
    """Return the restored keys and values of quantised tokens."""
    if system.store in QUANTIZERS:
        return restore(system.store, codes, reading == "remedied", kv)
    return kv.hex_read(codes)


class QuantizedEvictionLayer(AttendingLayer):
    """One layer: the kept entries of the prompt in codes, and every later token exact.

    Heads that keep equally many entries are stored together, others one by one.

    Args:
        source: the layer after eviction.
        scores: the scores of all tokens, which select HEX's heavy hitters, and the mask of kept
            entries.
        system: the system whose `store` names the quantiser.
        reading: `"letter"` or `"remedied"`.
        kv: `reference` or `optimized`.
    """

    def __init__(
        self,
        source: EvictionLayer,
        scores: tuple[Tensor, Tensor] | None,
        system: System,
        reading: str,
        kv: ModuleType,
    ) -> None:
        super().__init__()
        self.lazy_initialization(*source.whole)
        self.seen = self.seen_before = source.seen
        self.system, self.reading, self.kv = system, reading, kv
        self.offsets = None if source.old is None else source.old.offsets
        """Where the entries of each head start, if heads are stored one by one."""
        keys, values = source.whole if source.old is None else source.old[:2]
        self.empty = keys[..., :0, :].clone(), values[..., :0, :].clone()
        mass = torch.zeros(keys.shape[:-1], device=keys.device)
        if scores is not None:
            mass = scores[0][scores[1]].float().view(keys.shape[:-1])
            mass = kv.shift_scores(mass[None])[0] if bool((mass < 0).any()) else mass
        pools = [(keys, values, mass)]
        if self.offsets is not None:
            sizes = self.offsets.diff().tolist()
            parts = (x[None, None].split(sizes, 2) for x in pools[0])
            pools = [*zip(*parts, strict=True)]
        self.held = [quantize_tokens(system, *x, reading, kv) for x in pools if x[0].numel()]
        """The codes of all heads together, or of each head that keeps entries."""

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens; return the attention output over them and the restored entries."""
        self.append_arriving()
        layer = EvictionLayer()
        layer.seen, layer.seen_before, layer.evicted = self.seen, self.seen_before, True
        parts = [restore_tokens(self.system, x, self.reading, self.kv) for x in self.held]
        if self.offsets is None:
            both = zip(parts[0] if parts else self.empty, self.whole, strict=True)
            layer.keys, layer.values = (torch.cat([old.to(new), new], 2) for old, new in both)
        else:
            pools = [(keys[0, 0], values[0, 0]) for keys, values in parts] or [self.empty]
            keys, values = (torch.cat(x).to(self.whole[0]) for x in zip(*pools, strict=True))
            layer.old = ragged_without_positions(keys, values, self.offsets)
            layer.keys, layer.values = self.whole
        return layer.attend(query, valid, softmax)


class QuantizedEvictionCache(AttendingCache):
    """A cache of the entries that eviction keeps, in the codes of HEX, KIVI or GEAR.

    `nbytes` counts the codes. Tokens after the prompt are stored exactly. Each call restores the
    codes.

    Args:
        cache: the cache after eviction.
        scores: for each layer, the scores of all tokens and the mask of kept entries, if any.
        system: the system whose `store` names the quantiser.
        reading: `"letter"` or `"remedied"`.
        kv: `reference` or `optimized`.
    """

    def __init__(
        self,
        cache: EvictionCache,
        scores: list[tuple[Tensor, Tensor]] | None,
        system: System,
        reading: str,
        kv: ModuleType = optimized,
    ) -> None:
        layers = cache.evictable()
        sources = iter(zip(layers, scores or [None] * len(layers), strict=True))
        how = system, reading, kv
        super().__init__(cache, lambda: QuantizedEvictionLayer(*next(sources), *how))
        self.copy_record(cache)
