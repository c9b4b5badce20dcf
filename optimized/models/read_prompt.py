"""Read a prompt into a cache: a class for each kind of system."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from optimized import DecodingConfig, GraphSettings, HexConfig, Scored, kept_count
from optimized.distributed import run_alike
from optimized.models import argument_checks as checks
from optimized.models import tensor_parallel as ranks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attention import input_device
from optimized.models.cache import AttendingCache
from optimized.models.decoding_cache import SCORES, DecodingTransformersCache
from optimized.models.eviction_cache import EvictionCache
from optimized.models.fastkvzip_gates import load_gates
from optimized.models.hex import HexTransformersCache
from optimized.models.layer import count_full_attention_layers, layers_are_independent
from optimized.models.prefill import Prefilled, Step, prefill, read
from optimized.models.quantized import (
    QuantizedEvictionCache,
    QuantizedTransformersCache,
    require_storable,
)
from optimized.models.scorer import Scorer, Scores, lengths
from optimized.models.scorers import SCORERS
from optimized.models.selection import budget_of, kept_entries, warn_of_short_budgets
from optimized.models.systems import (
    QUANTIZERS,
    System,
    compares_queries,
    hex_settings,
    reading_settings,
    refinement_settings,
    store_of_kept,
)
from reference.contract.checks import one_of


class Inputs(NamedTuple):
    """The inputs of a model for a prompt."""

    ids: Tensor
    mask: Tensor
    extra: dict[str, Any]
    """Inputs besides ids: `pixel_values` and the like."""

    def without_last(self) -> "Inputs":
        """Return the inputs of all ids but the last."""
        shape, extra = self.ids.shape, self.extra
        extra = {name: x[:, :-1] if x.shape == shape else x for name, x in extra.items()}
        return Inputs(self.ids[:, :-1], self.mask[:, :-1], extra)


class Selected(NamedTuple):
    """Which entries of some layers are kept."""

    kept: dict[int, Tensor]
    """A mask of each layer, by its index."""
    scores: dict[int, Tensor]
    """The scores of each layer, if codes need them."""
    evicts: bool
    """Whether there is anything to evict."""
    short: dict[int, tuple[int, int]]
    """For each row with too small a budget, this budget and the number of protected entries."""


@dataclass
class Reader:
    """A system with a prompt and the options of `compressed`; `read` returns the cache."""

    model: PreTrainedModel
    system: System
    scorer: Scorer | None
    """The scorer, where the caller made it."""
    hex_config: HexConfig | None
    """The settings of HEX, where the caller gave them in place of a name."""
    inputs: Inputs
    protected: Tensor | None
    """Tokens that are kept in every head, besides those that the scorer protects."""
    exact: frozenset[int]
    """Indices of the layers that are left exact."""
    ratio: Any
    keep: Any
    interval: int | None
    settings: dict[str, Any]
    chunk: int | None
    reading: str
    kv: ModuleType
    group: ProcessGroup | None = None
    """The ranks to which the model's heads are dealt out."""

    def read(self) -> AttendingCache:
        """Read the prompt into a full cache."""
        return self.prefill(self.inputs).cache

    def prefill(
        self, inputs: Inputs, *scorers: Scorer, then: Sequence[Callable[[Step], None]] = ()
    ) -> Prefilled:
        """Return the result of `prefill`, watched by some scorers, and by others behind them."""
        read = prefill(
            self.model,
            inputs.ids,
            inputs.mask,
            chunk=self.chunk,
            watch=[*(scorer.watch for scorer in scorers), *then],
            keep_queries=compares_queries(self.system, self.reading),
            **inputs.extra,
        )
        return read._replace(exact=self.exact)

    def read_all_but_last(self, cache: AttendingCache) -> AttendingCache:
        """Read the prompt without its last token into a cache, and return the cache."""
        if self.inputs.ids.shape[1] > 1:
            ids, mask, extra = self.inputs.without_last()
            read(self.model, cache, ids, mask, None, extra)
        return cache

    def scorer_settings(self) -> dict[str, Any]:
        """Return the scorer's settings, with the FastKVzip gates from the model's folder."""
        if not SCORERS[str(self.system.scorer)].gated or "weights" in self.settings:
            return self.settings
        folder = Path(str(self.model.name_or_path))
        layers = count_full_attention_layers(self.model.config)
        return self.settings | {"weights": load_gates(folder, layers, input_device(self.model))}


class DecodingReader(Reader):
    """A system that compresses again after every interval."""

    def read(self) -> AttendingCache:
        """Read the prompt into a cache that shrinks to as many entries as are kept of it."""
        system, name = self.system, str(self.system.scorer)
        try:
            one_of("scorer of a system with an interval", system.scorer, SCORES)
        except ValueError as error:
            if system.scorer is None:
                raise
            why = SCORERS[name].of_prompt_alone
            why = "layers that share a budget shrink one by one" if system.shares_budget else why
            raise ValueError(f"{error}: {why}") from error
        scorer = SCORERS[name]
        takes = ("weights",) if scorer.gated else scorer.takes if scorer.looks_back else ()
        checks.require_known_settings(f"{name} with an interval", self.settings, takes)
        if scorer.negative and system.refinement is not None:
            raise ValueError(
                f"interval must be None for {system.name!r}, got {self.interval}: negative scores "
                "are not refined"
            )
        checks.reject_chunking("with an interval", self.chunk)
        assert self.interval is not None
        longest = int(self.inputs.mask.sum(-1).max())
        refinement = refinement_settings(system, self.reading)
        if isinstance(refinement, GraphSettings):  # there is no document length to adapt to
            refinement = refinement._replace(adaptive=False)
        config = DecodingConfig(
            self.keep or kept_count(longest, self.ratio),
            self.interval,
            "layer" if system.scope == "model" else system.scope,
            refinement,
        )
        gates = self.scorer_settings().get("weights")
        options = {n: x for n, x in self.settings.items() if n != "weights"}
        how = name, gates, self.kv, self.exact, scorer.of_model(self.model) | options
        cache = DecodingTransformersCache(self.model.config, config, *how)
        return self.read_all_but_last(cache)


class QuantizedReader(Reader):
    """KIVI or GEAR."""

    def read(self) -> AttendingCache:
        """Read the prompt without its last token into codes."""
        checks.reject_chunking(f"for {self.system.name!r}", self.chunk)
        outliers = self.reading == "remedied"
        store = str(self.system.store)
        how = outliers, self.kv, self.system.changes_of("store"), self.exact
        cache = QuantizedTransformersCache(self.model.config, store, *how)
        return self.read_all_but_last(cache)


class HexReader(Reader):
    """HEX or KCVT."""

    def read(self) -> AttendingCache:
        """Read the prompt without its last token, then store it in codes."""
        system = self.system
        config = self.hex_config or hex_settings(system, self.reading)
        try:
            cache = HexTransformersCache(self.model.config, config, self.kv, self.exact)
        except ValueError as error:
            if not str(error).startswith("density") or not system.name.startswith("hex-"):
                raise
            preset = f"optimized.hex_preset({system.name[:5].upper()!r})._replace(near=True)"
            raise ValueError(
                f"{error}: use `{preset}` in place of {system.name!r} for the nearest density"
            ) from error
        if self.inputs.ids.shape[1] == 1:
            return cache
        h2o = SCORERS["h2o"](self.model, self.kv)
        prompt = self.prefill(self.inputs.without_last(), *[h2o] * (system.scorer is not None))
        scored: list[Scored] = []
        for index, layer in enumerate(prompt.cache.whole_layers()):
            zeros = torch.zeros_like(layer.whole[0][..., 0], dtype=torch.float32)
            scored.append(Scored(h2o.memory.get(index, zeros), zeros.bool()))
        refined = refinement_settings(system, self.reading)
        return HexTransformersCache.of_prompt(
            prompt, scored, self.kv.compress, config, self.kv, self.exact, refinement=refined
        )


class EvictingReader(Reader):
    """A system that evicts once, and may store what is left in codes."""

    def read(self) -> AttendingCache:
        """Read the prompt, evict, and store the entries left in codes if the system says so."""
        system, inputs, name = self.system, self.inputs, str(self.system.scorer)
        scorer = self.scorer
        if scorer is None:
            settings = reading_settings(name, self.reading) | self.scorer_settings()
            scorer = SCORERS[name](self.model, self.kv, **settings)
        if system.then is not None:  # codes cannot remove the last token
            mask = inputs.mask
            alike = bool(mask.all()) and (len(mask) == 1 or not system.shares_budget)
            require_storable(system, self.model.config, alike, self.reading)
            inputs = inputs.without_last()
            if not inputs.ids.shape[1]:
                cache = EvictionCache(self.model.config)
                cache.open = True
                return cache
        selected: list[Selected] = []
        cutting = [partial(self.cut_layer, scorer, inputs, selected)] if self.cuts(scorer) else []
        prompt = self.prefill(inputs, scorer, then=cutting)
        cache, layers = prompt.cache, prompt.cache.evictable()
        if not cutting:
            selected.append(self.select(scorer, prompt))
        whole = prompt.valid if prompt.valid is not None else torch.ones_like(inputs.ids).bool()
        kept = {n: mask for part in selected for n, mask in part.kept.items()}
        if any(part.evicts for part in selected):
            heads = layers[0].whole[0].shape[1]
            everything = whole[:, None].expand(-1, heads, -1)
            masks = [kept.get(n, everything) for n in range(len(layers))]
            if cutting:
                cache.kept_of_prompt = [mask.cpu().clone() for mask in masks]
            else:
                cache.evict(masks, self.kv, self.exact)
        short = {row: found for part in selected for row, found in part.short.items()}
        warn_of_short_budgets(system, short, len(inputs.ids))
        if system.then is None:
            return cache
        scores = {n: one for part in selected for n, one in part.scores.items()}
        paid = [layers[n].beside((scores[n], kept[n])) for n in scores]
        stored = store_of_kept(system)
        return QuantizedEvictionCache(cache, paid or None, stored, self.reading, self.kv)

    def cuts(self, scorer: Scorer) -> bool:
        """Return whether each layer is evicted as soon as it has been read."""
        system, budget = self.system, self.ratio if self.keep is None else self.keep
        alone = scorer.by_layer and system.scope != "model" and not system.shares_budget
        at_once = (self.chunk or self.inputs.ids.shape[1]) >= self.inputs.ids.shape[1]
        return (
            alone
            and at_once
            and not isinstance(budget, Sequence)
            and not compares_queries(system, self.reading)
            and layers_are_independent(self.model.config)
        )

    def cut_layer(
        self, scorer: Scorer, inputs: Inputs, selected: list["Selected"], step: Step
    ) -> None:
        """Evict from a layer once it has attended: the next layers do not need its entries."""
        layer = step.cache.evictable()[step.layer]
        if step.layer in self.exact:
            return

        def cut() -> None:
            others = frozenset(range(len(step.cache.evictable()))) - {step.layer}
            logits = torch.empty(0)
            valid = None if step.valid is None else step.valid.to(inputs.ids.device)
            prompt = Prefilled(step.cache, valid, logits, inputs.ids, exact=others)
            part = self.select(scorer, prompt)
            if part.evicts:
                layer.adopt(self.kv.evict(*layer.whole, layer.beside(part.kept[step.layer])))
            scorer.memory.pop(step.layer, None)
            selected.append(part)

        layer.when_attended = cut

    def select(self, scorer: Scorer, prompt: Prefilled) -> "Selected":
        """Return the entries to keep of the layers of a prompt."""
        layers, counts = prompt.layers(), lengths(prompt).tolist()
        heads = next(iter(layers.values())).whole[0].shape[1]
        heads = ranks.count_all_heads(self.group, heads, self.model.config)
        valid = torch.ones_like(prompt.input_ids).bool() if prompt.valid is None else prompt.valid
        kept = valid[:, None].expand(len(layers), -1, heads, -1).clone()
        ratio, keep, layered = self.ratio, self.keep, None
        if isinstance(ratio if keep is None else keep, Sequence):
            pairs = [(x, None) for x in ratio or ()] or [(None, x) for x in keep or ()]
            layered = torch.stack([budgets_of_heads(counts, *pairs[index]) for index in layers])
            layered = layered.to(kept.device)
            smallest = layered.movedim(1, 0).flatten(1).amin(1)
            budgets, ratio, keep = smallest.tolist(), None, max(counts)
        else:
            budgets = [budget_of(count, 1, ratio, keep) for count in counts]
        scores, paid = None, None
        short: dict[int, tuple[int, int]] = {}
        for scores, rows in score_rows(scorer, prompt, budgets, self.group):
            if self.protected is not None:
                scores = scores.protecting(self.protected[:, : valid.shape[1]])
            scores = scores if layered is None else scores._replace(budgets=layered)
            how = self.system, prompt, scores, ratio, self.reading, self.kv, keep
            kept[:, rows], found = kept_entries(*how, rows if len(rows) < len(valid) else None)
            short |= found
            if self.system.then is not None:
                paid = paid or [scored.scores.clone() for scored in scores.scored]
                for layer, scored in zip(paid, scores.scored, strict=True):
                    layer[rows] = scored.scores[rows]
        evicts = scores is not None or self.system.then is not None  # codes cannot hold padding
        masks = dict(zip(layers, ranks.own_heads(self.group, kept), strict=True))
        paid = [ranks.own_heads(self.group, layer) for layer in paid or ()]
        return Selected(masks, dict(zip(layers, paid, strict=False)), evicts, short)


def budgets_of_heads(counts: list[int], ratio: Any, keep: Any) -> Tensor:
    """Return the budgets of a layer in each row: one for all heads, or one for each head."""
    if isinstance(ratio if keep is None else keep, Sequence):
        heads = [(x, None) for x in ratio or ()] or [(None, x) for x in keep or ()]
        return torch.stack([budgets_of_heads(counts, *head) for head in heads], -1)
    return torch.tensor([budget_of(count, 1, ratio, keep) for count in counts])


def reader_of(system: System, interval: int | None) -> type[Reader]:
    """Return the class that reads a prompt for a system."""
    if interval is not None:
        return DecodingReader
    if system.store is not None:
        return QuantizedReader if system.store in QUANTIZERS else HexReader
    return EvictingReader if system.evicts else Reader


def score_rows(
    scorer: Scorer, prompt: Prefilled, budgets: list[int], group: ProcessGroup | None
) -> Iterator[tuple[Scores, list[int]]]:
    """Yield scores by each budget of a row, and the rows of that budget with entries to evict."""
    counts = lengths(prompt).tolist()
    depends = scorer.budgeted or scorer.observing is not None
    set_window = scorer.chosen("window")
    for budget in sorted(set(budgets) if depends else {max(budgets)}):
        rows = [row for row, own in enumerate(budgets) if own == budget or not depends]
        rows = [row for row in rows if budgets[row] < counts[row]]
        window = 0
        if scorer.observing is not None:
            wanted = set_window.get("window") or scorer.window_for(budget)
            window = min(wanted, max(scorer.least, budget))
            rows = [row for row in rows if counts[row] > window]
            scorer.settings["window"] = window
        if rows:
            scores = run_alike(group, partial(scorer.finish, prompt, max(budget, window)))
            every = (Scored(*(ranks.all_heads(group, x) for x in one)) for one in scores.scored)
            yield scores._replace(scored=tuple(every)), rows
    scorer.settings.pop("window", None)
    scorer.settings |= set_window
