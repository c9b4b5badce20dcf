"""Quantised caches of the entries that eviction keeps: `"snapkv>hex-4"` and the like."""

from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized import Scored
from optimized.models import argument_checks as checks
from optimized.models.attention import Softmax
from optimized.models.eviction_cache import EvictionCache, EvictionLayer, ragged_without_positions
from optimized.models.layer import AttendingCache, AttendingLayer, Saved, key_heads_and_width
from optimized.models.quantized import QUANTIZERS, quantize, require_whole_groups, restore
from optimized.models.systems import System, hex_settings, refinement_settings, system_named


def require_storable(one: System, config: Any, alike: bool, reading: str) -> None:
    """Refuse heads of a width that a store behind `>` cannot quantise, before a prompt is read.

    Heads that keep equally many entries are stored together, others one by one. Where rows are
    `alike`, they have the same budgets.
    """
    assert one.then is not None
    checks.reject_shared_keys(config, [QuantizedEvictionLayer()])
    require_whole_groups(one.then, config, optimized)
    if not one.then.startswith("hex"):
        return
    heads, width = key_heads_and_width(config)
    channels = width * (heads if alike and one.scope == "head" else 1)
    settings = hex_settings(system_named(one.then), reading)
    try:
        optimized.biregular_degrees(settings.block, channels, settings.density)
    except ValueError as error:
        raise ValueError(
            f"model must have a multiple of {round(1 / settings.density)} channels, at least "
            f"{round(3 / settings.density)}, in what {one.name!r} stores together, got {channels}: "
            "all heads where they keep equally many entries (@head, one prompt), else one head; "
            "'kcvt-4' and 'gear' behind '>' take any number"
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
    system: System, held: Any, reading: str, kv: ModuleType
) -> tuple[Tensor, Tensor]:
    """Return the restored keys and values of quantised tokens."""
    if system.store in QUANTIZERS:
        return restore(system.store, held, reading == "remedied", kv)
    return kv.hex_read(held)


class Codes(Saved):
    """The quantised entries of one layer; heads that keep equally many entries are stored together.

    Args:
        layer: the layer after eviction.
        scores: the scores of all tokens, which select HEX's heavy hitters, and the mask of kept
            entries.
        system: the system whose `store` names the quantiser.
        reading: `"letter"` or `"remedied"`.
        kv: `reference` or `optimized`.
    """

    def __init__(
        self,
        layer: EvictionLayer,
        scores: tuple[Tensor, Tensor] | None,
        system: System,
        reading: str,
        kv: ModuleType,
    ) -> None:
        self.system, self.reading, self.kv = system, reading, kv
        self.offsets = None if layer.old is None else layer.old.offsets
        keys, values = layer.whole if layer.old is None else layer.old[:2]
        self.empty = keys[..., :0, :].clone(), values[..., :0, :].clone()
        mass = None if scores is None else scores[0][scores[1]].float()
        if mass is not None and bool((mass < 0).any()):
            mass = kv.shift_scores(mass[None])[0]
        if self.offsets is None:
            mass = None if mass is None else mass.view(keys.shape[:-1])
            self.held = (
                [quantize_tokens(system, keys, values, mass, reading, kv)] if keys.numel() else []
            )
            return
        self.held = []
        bounds = self.offsets.tolist()
        for start, stop in pairwise(bounds):
            some = slice(start, stop)
            part = None if mass is None else mass[some][None, None]
            pool = keys[some][None, None], values[some][None, None]
            self.held.append(
                quantize_tokens(system, *pool, part, reading, kv) if stop > start else None
            )

    def read(self) -> tuple[Tensor, Tensor]:
        """Return restored keys and values: dense, or concatenated head after head."""
        how = self.reading, self.kv
        parts = [restore_tokens(self.system, x, *how) for x in self.held if x is not None]
        if not parts:
            return self.empty
        if self.offsets is None:
            return parts[0]
        keys, values = zip(*parts, strict=True)
        return torch.cat([x[0, 0] for x in keys]), torch.cat([x[0, 0] for x in values])

    def restore_into(self, layer: EvictionLayer, since: tuple[Tensor, Tensor]) -> None:
        """Put the restored entries into a layer, followed by the exact later tokens."""
        keys, values = self.read()
        if self.offsets is None:
            both = zip((keys, values), since, strict=True)
            layer.keys, layer.values = (torch.cat([old.to(new), new], 2) for old, new in both)
        else:
            layer.old = ragged_without_positions(
                keys.to(since[0]), values.to(since[1]), self.offsets
            )
            layer.keys, layer.values = since


class QuantizedEvictionLayer(AttendingLayer):
    """One layer: the kept entries of the prompt in codes, and every later token exact."""

    def __init__(self) -> None:
        super().__init__()
        self.codes: Codes | None = None
        self.seen_before = 0

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens; return the attention output over them and the restored entries."""
        assert self.keys is not None
        assert self.values is not None
        assert self.codes is not None
        keys, values, _ = self.take_arriving()
        self.keys = torch.cat([self.keys, keys], 2)
        self.values = torch.cat([self.values, values], 2)
        whole = EvictionLayer()
        whole.seen, whole.seen_before, whole.evicted = self.seen, self.seen_before, True
        self.codes.restore_into(whole, (self.keys, self.values))
        return whole.attend(query, valid, softmax)

    def reset(self) -> None:
        """Raise an error, since the cache could not read another prompt."""
        raise NotImplementedError("a cache of codes cannot be emptied: make a new one")


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
        super().__init__(cache, QuantizedEvictionLayer)
        ours = [one for one in self.layers if isinstance(one, QuantizedEvictionLayer)]
        for index, (layer, source) in enumerate(zip(ours, cache.evictable(), strict=True)):
            layer.lazy_initialization(*source.whole)
            layer.seen = layer.seen_before = source.seen
            paid = None if scores is None else scores[index]
            layer.codes = Codes(source, paid, system, reading, kv)
        self.copy_record(cache)
