"""Caches of quantised tokens, which they restore to compute attention.

One quantises the whole prompt; one, `"snapkv>hex-4"` and the like, what eviction keeps of it.
"""

from collections.abc import Collection, Mapping
from copy import deepcopy
from inspect import signature
from math import gcd, isfinite
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
import reference
from optimized import Scored
from optimized.models.attending_layer import AttendingLayer, without_autocast
from optimized.models.attention import Softmax, dense_attention
from optimized.models.cache import AttendingCache
from optimized.models.eviction_cache import (
    EvictionCache,
    EvictionLayer,
    exact_or,
    ragged_without_positions,
)
from optimized.models.layer import key_heads_and_width, require_own_keys, whole_widths
from optimized.models.systems import (
    QUANTIZERS,
    System,
    hex_settings,
    quantizer_settings,
    refinement_settings,
    store_of_kept,
    with_store_settings,
)
from optimized.vector.quantizers.gear_cache import gear_append, gear_attention
from optimized.vector.quantizers.kivi import kivi_append, kivi_attention
from reference.contract.checks import one_of
from reference.contract.enforce import may_read_values
from reference.quantizers.kivi import KiviCache


class QuantizedLayer(AttendingLayer):
    """One layer of KIVI or GEAR, which quantises the prompt at once, and later tokens as they come.

    A batch with padding is stored row by row, since real tokens are quantised together, and rows
    have different numbers of them.
    """

    def __init__(self, system: System, reading: str, kv: ModuleType) -> None:
        super().__init__()
        self.system, self.reading, self.kv = system, reading, kv

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens; return the attention output over exact new and restored old ones."""
        keys, values, _ = self.take_arriving()
        query = query.to(keys.dtype)
        with without_autocast(query):
            if valid is None:
                return self.answer(query, keys, values, softmax)
            new = valid[:, -query.shape[2] :]
            out = query.new_zeros(*query.shape[:-1], values.shape[-1])
            rows: list[Any] = [None] * len(new) if self.held is None else list(self.held)
            for row, flags in enumerate(new):
                real = slice(None) if self.steady else flags
                if self.steady or bool(flags.any()):
                    q, k, v = (x[row : row + 1, :, real] for x in (query, keys, values))
                    self.held = rows[row]
                    out[row : row + 1, :, real] = self.answer(q, k, v, softmax)
                    rows[row] = self.held
            self.held = tuple(rows)
            return out

    def answer(self, query: Tensor, keys: Tensor, values: Tensor, softmax: Softmax) -> Tensor:
        """Return the attention output for rows without padding, and add the new tokens."""
        if self.held is None:
            self.held = self.start(softmax.standard(query), keys, values)
            return dense_attention(query, keys, values, None, softmax)
        return self.go_on(query, keys, values, softmax)

    def go_on(self, query: Tensor, keys: Tensor, values: Tensor, softmax: Softmax) -> Tensor:
        """Return the attention output over restored tokens, then store the new ones.

        Each step takes at most `room` new tokens. One token has ways of its own, which restore no
        code of KIVI and move no restored token of GEAR.
        """
        if query.shape[2] == 1 and softmax.plain and self.kv is not reference:
            standard, new = softmax.standard(query), (keys, values)
            append: Any = kivi_append
            if isinstance(self.held, KiviCache):
                output = kivi_attention(standard, self.held, *new)
            else:
                exact = self.reading == "remedied"
                output, append = gear_attention(standard, self.held, *new, exact), gear_append
            if may_be_infinite(output, keys):
                self.append(standard, *new)  # the specification's checks say why
            else:
                self.held = append(self.held, *new)
            return output
        parts, start = [], 0
        while start < query.shape[2]:
            stop = min(query.shape[2], start + self.room(query.shape[2]))
            q, k, v = (x[:, :, start:stop] for x in (query, keys, values))
            old_keys, old_values = self.read()
            every = torch.cat([old_keys, k], 2), torch.cat([old_values, v], 2)
            parts.append(dense_attention(q, *every, None, softmax))
            self.append(softmax.standard(q), k, v)
            start = stop
        return torch.cat(parts, 2)

    def room(self, new: int) -> int:
        """Return how many new tokens can be stored in one step."""
        return new

    def start(self, query: Tensor, keys: Tensor, values: Tensor) -> Any:
        """Return the quantised first tokens."""
        del query
        return quantize_tokens(self.system, keys, values, None, self.reading, self.kv)

    def read(self) -> tuple[Tensor, Tensor]:
        """Return the restored keys and values."""
        return restore_tokens(self.system, self.held, self.reading, self.kv)

    def append(self, query: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new tokens, and quantise each full group."""
        del query
        add = self.kv.gear_append if self.system.store == "gear" else self.kv.kivi_append
        self.held = add(self.held, keys, values)


def may_be_infinite(output: Tensor, keys: Tensor) -> bool:
    """Whether a step's output, or a key that no query sees, is perhaps not finite."""
    return may_read_values(output) and not isfinite(output.sum().item() + keys.sum().item())


def require_whole_groups(system: System, config: Any, kv: ModuleType) -> None:
    """Refuse heads whose channels, or a buffer whose tokens, KIVI cannot divide into groups."""
    name = str(system.store)
    if not name.startswith("kivi"):
        return
    usual = signature(kv.kivi_prefill).parameters
    settings = {n: usual[n].default for n in ("group", "residual")} | quantizer_settings(system)
    group, residual, widths = settings["group"], settings["residual"], whole_widths(config)
    fits = gcd(group, residual, *widths)
    if gcd(group, *widths) < group:
        raise ValueError(
            f"model must have heads of a multiple of {group} channels for {name!r}, whose groups "
            f"of values have {group}, got heads of {' and '.join(map(str, widths))}: {fits} "
            f"divides them, as settings={{'group': {fits}}}; 'gear' and 'kcvt-4' take any"
        )
    if residual % group:
        raise ValueError(
            f"residual must be a multiple of group = {group} for {name!r}, got {residual}: {fits} "
            f"divides it, as settings={{'group': {fits}}}"
        )


class QuantizedTransformersCache(AttendingCache):
    """The cache of a baseline quantiser of HEX, for `model.generate(past_key_values=...)`.

    The first call of the model is the prompt; later calls append tokens.

    Args:
        config: the configuration of an attached model.
        name: `"kivi-2"`, `"kivi-4"`, `"kivi-8"` or `"gear"`.
        exact_outliers: whether GEAR's correction leaves outliers unchanged (E-H42).
        kv: `reference` or `optimized`.
        settings: other settings of `kivi_prefill` or `gear_prefill`.
        exact: indices of the layers that are not quantised.

    Raises:
        ValueError: there is no such quantiser.
    """

    def __init__(
        self,
        config: Any,
        name: str,
        exact_outliers: bool = False,
        kv: ModuleType = optimized,
        settings: Mapping[str, Any] | None = None,
        exact: Collection[int] = (),
    ) -> None:
        one_of("name", name, QUANTIZERS)
        system = with_store_settings(System(name, store=name), settings or {})
        require_whole_groups(system, config, kv)
        reading = "remedied" if exact_outliers else "letter"
        how = system, reading, kv
        super().__init__(config, exact_or(exact, lambda _: QuantizedLayer(*how)))


def require_storable(system: System, config: Any, alike: bool, reading: str) -> None:
    """Refuse heads of a width that a store behind `>` cannot quantise, before a prompt is read.

    Heads that keep equally many entries are stored together, others one by one. Where rows are
    `alike`, they have the same budgets.
    """
    assert system.then is not None
    require_own_keys(config)
    store = store_of_kept(system)
    require_whole_groups(store, config, optimized)
    if not system.then.startswith("hex"):
        return
    heads, width = key_heads_and_width(config)
    channels = width * (heads if alike and system.scope == "head" else 1)
    settings = hex_settings(store, reading)
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
    if system.store == "gear":
        return kv.gear_prefill(keys, values, **quantizer_settings(system))
    if system.store.startswith("kivi"):
        return kv.kivi_prefill(keys, values, **quantizer_settings(system))
    if mass is None:
        mass = keys.new_zeros(keys.shape[:-1], dtype=torch.float32)
    scored = Scored(mass, torch.zeros_like(mass, dtype=torch.bool))
    settings, refined = hex_settings(system, reading), refinement_settings(system, reading)
    return kv.compress(keys, values, scored, store=settings, refinement=refined)


def restore_tokens(
    system: System, codes: Any, reading: str, kv: ModuleType
) -> tuple[Tensor, Tensor]:
    """Return the restored keys and values of quantised tokens."""
    if system.store == "gear":
        return kv.gear_read(codes, exact_outliers=reading == "remedied")
    return kv.kivi_read(codes) if system.store in QUANTIZERS else kv.hex_read(codes)


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

    can_remove_last = True

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
        mass = torch.zeros(keys.shape[:-1], device=keys.device)
        if scores is not None:
            mass = scores[0][scores[1]].float().view(keys.shape[:-1])
            mass = kv.shift_scores(mass[None])[0] if bool((mass < 0).any()) else mass
        pools = [(keys, values, mass)]
        if self.offsets is not None:
            sizes = self.offsets.diff().tolist()
            parts = (x[None, None].split(sizes, 2) for x in pools[0])
            pools = [(key, value, paid) for key, value, paid in zip(*parts, strict=True)]
        self.held = [quantize_tokens(system, *x, reading, kv) for x in pools if x[0].numel()]
        """The codes of all heads together, or of each head that keeps entries."""

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens; return the attention output over them and the restored entries."""
        self.append_arriving()
        layer = EvictionLayer()
        layer.seen, layer.seen_before, layer.evicted = self.seen, self.seen_before, True
        parts = [restore_tokens(self.system, x, self.reading, self.kv) for x in self.held]
        keys, values = self.whole
        parts = parts or [(keys[:, :, :0], values[:, :, :0])]
        if self.offsets is None:
            both = zip(parts[0], self.whole, strict=True)
            layer.keys, layer.values = (torch.cat([old.to(new), new], 2) for old, new in both)
        else:
            heads = (torch.cat([x[0, 0] for x in side]) for side in zip(*parts, strict=True))
            old_keys, old_values = (x.to(keys) for x in heads)
            layer.old = ragged_without_positions(old_keys, old_values, self.offsets)
            layer.keys, layer.values = self.whole
        return layer.attend(query, valid, softmax)

    def reset(self) -> None:
        """Raise an error, since the cache could not read another prompt."""
        raise NotImplementedError("a cache of codes cannot be emptied: make a new one")


class QuantizedEvictionCache(AttendingCache):
    """A cache of the entries that eviction keeps, in the codes of HEX, KIVI or GEAR.

    `nbytes` counts the codes. Tokens after the prompt are stored exactly. Each call restores the
    codes.

    Args:
        cache: the cache after eviction; layers that were not evicted stay as they are.
        scores: for each other layer, the scores of all tokens and the mask of kept entries, if any.
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
        layers, how = cache.evictable(), (system, reading, kv)
        paid = iter(scores or [None] * len(layers))

        def layer(index: int) -> AttendingLayer:
            source = layers[index]
            if not source.evicted:
                return deepcopy(source)
            return QuantizedEvictionLayer(source, next(paid), *how)

        super().__init__(cache, layer)
        self.copy_record(cache)
