"""What each system costs a model: documents are read once, then compressed in every way."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from math import log
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from optimized import kept_count
from optimized.models.documents import Document
from optimized.models.prefill import Step, prefill, watched
from optimized.models.scorer import Scorer, Scores
from optimized.models.scoring import scorer
from optimized.models.selection import Clock, kept_entries, stored
from optimized.models.systems import SHARING, System

BATCH = 8
"""Documents read at a time."""
PROBES = 32
"""Queries after the prompt whose attention is compared."""
WINDOW = 32
"""Queries that observe in SnapKV, PyramidKV and CAKE, or half the budget where that is less."""
OBSERVING = ("snapkv", *SHARING)


class Way(NamedTuple):
    """A system at a ratio; quantisers, and the full cache, have none."""

    system: System
    ratio: float | None


@dataclass
class Row:
    """What was measured of one way, a number for each document."""

    way: Way
    bits: list[float] = field(default_factory=list)
    found: list[list[bool]] = field(default_factory=list)
    deviation: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)
    nbytes: int = 0
    kept: int = 0
    entries: int = 0
    differing: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    seconds: dict[str, float] = field(default_factory=dict)
    refused: str | None = None


class Settings(NamedTuple):
    """What a measurement needs beside the model."""

    reading: str
    seed: int
    kv: ModuleType
    """The implementation."""
    other: ModuleType | None
    """The implementation whose kept entries are compared, where one is."""
    gates: Sequence[Any] | None
    repeat: Callable[[int, Tensor], list[int]]
    """The request of KVzip for a chunk."""


class Probe(NamedTuple):
    """The first queries after the prompt in one layer, with their keys and values."""

    queries: Tensor
    keys: Tensor
    values: Tensor


def ways(systems: Sequence[System], ratios: Sequence[float]) -> list[Way]:
    """Return every row to be measured."""
    return [
        Way(system, ratio) for system in systems for ratio in (ratios if system.evicts else (None,))
    ]


def batches(documents: Sequence[Document]) -> list[list[Document]]:
    """Put documents of one length together, a few at a time."""
    alike = (list(some) for _, some in groupby(documents, lambda one: len(one.context)))
    return [some[at : at + BATCH] for some in alike for at in range(0, len(some), BATCH)]


def evaluate(
    model: PreTrainedModel,
    documents: Sequence[Document],
    rows: Sequence[Way],
    settings: Settings,
    step: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Measure every row on every document.

    Args:
        model: an attached model.
        documents: those of one length beside each other.
        rows: what to measure.
        settings: the reading, the seed, the implementation.
        step: called with the name of a row whenever it was measured on a batch.
    """
    found = [Row(way) for way in rows]
    for batch in batches(documents):
        with torch.inference_mode():
            Batch(model, batch, rows, settings).measure(found, step)
    return found


class Batch:
    """Some documents of one length, read once."""

    def __init__(
        self,
        model: PreTrainedModel,
        documents: Sequence[Document],
        rows: Sequence[Way],
        settings: Settings,
    ) -> None:
        self.model, self.documents, self.settings = model, documents, settings
        self.device, self.clock = model.device, Clock(model.device)
        names = {way.system.scorer for way in rows if way.system.scorer is not None}
        both = [settings.kv, *([settings.other] if settings.other is not None else [])]
        self.scorers = {
            (kv, name): self.prepared(name, kv) for kv in both for name in sorted(names)
        }
        ids = self.tensor([document.context for document in documents])
        self.prompt = prefill(model, ids, watch=[self.timed(*key) for key in self.scorers])
        self.narrow()
        self.scores: dict[Any, Scores] = {}
        self.probes: list[Probe] = []
        with self.observed():
            self.whole_bits = self.bits()
        self.whole = self.attended()

    def prepared(self, name: str, kv: ModuleType) -> Scorer:
        """Return a scorer with its settings."""
        chosen: dict[str, Any] = {}
        if name == "random":
            chosen["seed"] = self.settings.seed
        if name == "fastkvzip":
            chosen["weights"] = self.settings.gates
        if name == "pyramidkv":
            chosen["exact"] = self.settings.reading == "remedied"
        if name == "kvzip":
            chosen |= self.repeating()
        return scorer(name, self.model, kv, **chosen)

    def repeating(self) -> dict[str, Any]:
        """Let KVzip repeat in as few equal chunks as the model's positions allow."""
        tokens = len(self.documents[0].context)
        limit = getattr(self.model.config, "max_position_embeddings", None) or 2**31
        longest = len(self.settings.repeat(1, torch.zeros(8, dtype=torch.long))) + 8
        room = max(1, min(2000, limit - tokens - longest))
        chunks = -(-max(1, tokens - 4) // room)
        return {"chunk": -(-max(1, tokens - 4) // chunks), "prompt": self.settings.repeat}

    def timed(self, kv: ModuleType, name: str) -> Callable[[Step], None]:
        """Count a scorer's watching to its own time."""
        watching = self.scorers[kv, name]

        def watch(step: Step) -> None:
            with self.clock.at(f"{kv.__name__} {name}"):
                watching.watch(step)

        return watch

    def narrow(self) -> None:
        """Hold the cache in 16 bits, as the papers do, whatever the model computes in."""
        for layer in self.prompt.cache.evictable():
            keys, values = layer.whole
            if keys.element_size() > 2:
                layer.keys, layer.values = keys.half(), values.half()

    def tensor(self, rows: list[list[int]]) -> Tensor:
        """Return rows of tokens, filled up on the right, where nothing looks."""
        longest = max(map(len, rows))
        return torch.tensor([row + row[-1:] * (longest - len(row)) for row in rows]).to(self.device)

    def logits(self, ids: Tensor) -> Tensor:
        """Read more tokens, and forget them again."""
        cache = self.prompt.cache
        start = cache.get_seq_length()
        places = torch.arange(start, start + ids.shape[1], device=self.device)
        with cache.undone():
            return self.model(
                input_ids=ids,
                position_ids=places.expand(ids.shape),
                past_key_values=cache,
                use_cache=True,
            ).logits.float()

    def bits(self) -> list[float]:
        """Return the bits a byte of each continuation costs, after its first token."""
        ids = self.tensor([document.continuation for document in self.documents])
        logits = self.logits(ids[:, :-1])
        nats = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").double().sum(-1)
        sizes = (max(1, document.size) for document in self.documents)
        return [total / log(2) / size for total, size in zip(nats.tolist(), sizes, strict=True)]

    def found(self) -> list[list[bool]]:
        """Return which questions of each document are answered right, greedily."""
        right: list[list[bool]] = [[] for _ in self.documents]
        for asked in zip(*(document.questions for document in self.documents), strict=True):
            rows = [question.asked + question.answer for question in asked]
            ids = self.tensor(rows)
            guesses = self.logits(ids[:, :-1]).argmax(-1)
            for row, question in enumerate(asked):
                place = slice(len(question.asked) - 1, len(rows[row]) - 1)
                answer = torch.tensor(question.answer, device=self.device)
                right[row].append(bool((guesses[row, place] == answer).all()))
        return right

    def observed(self) -> Any:
        """Remember the first queries after the prompt, and what they see of each other."""

        def watch(step: Step) -> None:
            new = step.queries.shape[2]
            count = min(PROBES, new)
            keys, values = (x[:, :, -new:][:, :, :count].clone() for x in (step.keys, step.values))
            self.probes.append(Probe(step.queries[:, :, :count].clone(), keys, values))

        return watched(self.model, self.prompt.cache, [watch])

    def attended(self) -> list[Tensor]:
        """Return the attention of those queries to what the cache holds, layer by layer."""
        cache, out = self.prompt.cache, []
        with cache.undone():
            for layer, probe in zip(cache.evictable(), self.probes, strict=True):
                layer.update(probe.keys, probe.values)
                out.append(layer.attend(probe.queries, None, probe.queries.shape[-1] ** -0.5))
        return out

    def measure(self, rows: Sequence[Row], step: Callable[[str], None]) -> None:
        """Measure every way, and add what is found to its row."""
        for row in rows:
            if row.refused is None:
                try:
                    with self.prompt.cache.undone():
                        self.compress(row)
                        self.judge(row)
                except ValueError as refusal:
                    row.refused = str(refusal)
            step(row.way.system.name)

    def compress(self, row: Row) -> None:
        """Compress the cache in one way."""
        cache, way, kv = self.prompt.cache, row.way, self.settings.kv
        clock, reading = Clock(self.device), self.settings.reading
        row.entries += sum(layer.whole[0].shape[:-1].numel() for layer in cache.whole_layers())
        if way.system.evicts:
            assert way.ratio is not None
            kept = self.kept(way, kv, clock)
            if self.settings.other is not None:
                twin = self.kept(way, self.settings.other, Clock(self.device))
                row.differing += int((kept & ~twin).sum())
            row.digest.update(kept.cpu().numpy().tobytes())
            row.kept += int(kept.sum())
            with clock.at("selecting"):
                cache.evict(list(kept), kv=kv)
            row.nbytes += cache.nbytes
        elif way.system.store is None:
            row.kept += sum(layer.whole[0].shape[:-1].numel() for layer in cache.whole_layers())
            row.nbytes += cache.nbytes
        else:
            mass = self.mass(kv, clock) if way.system.scorer is not None else None
            with clock.at("selecting"):
                read = stored(way.system, self.prompt, mass, reading, kv)
            for layer, (keys, values) in zip(cache.evictable(), read.layers, strict=True):
                row.digest.update(keys.float().cpu().numpy().tobytes())
                layer.keys, layer.values = keys, values
            row.kept += sum(layer.whole[0].shape[:-1].numel() for layer in cache.whole_layers())
            row.nbytes += read.nbytes
        for stage, seconds in clock.seconds.items():
            row.seconds[stage] = row.seconds.get(stage, 0.0) + seconds

    def kept(self, way: Way, kv: ModuleType, clock: Clock) -> Tensor:
        """Return which entries one way keeps."""
        assert way.ratio is not None
        scores, seconds = self.scored(way, kv)
        clock.seconds["scoring"] = seconds
        reading = self.settings.reading
        return kept_entries(way.system, self.prompt, scores, way.ratio, reading, kv, clock)

    def scored(self, way: Way, kv: ModuleType) -> tuple[Scores, float]:
        """Let a scorer finish, once for every budget it asks for; say how long it took in all."""
        name, tokens = way.system.scorer, self.prompt.input_ids.shape[1]
        assert name is not None
        assert way.ratio is not None
        keep = kept_count(tokens, way.ratio)
        one = self.scorers[kv, name]
        if name in OBSERVING:
            one.settings["window"] = min(WINDOW, max(2, keep // 2))
        key = f"{kv.__name__} {name}"
        asks = name == "h2o" or name in OBSERVING
        at = f"{key} {keep}" if asks else f"{key} at the end"
        if at not in self.scores:
            with self.clock.at(at):
                self.scores[at] = one.finish(self.prompt, keep)
        return self.scores[at], self.clock.seconds.get(key, 0.0) + self.clock.seconds[at]

    def mass(self, kv: ModuleType, clock: Clock) -> list[Tensor]:
        """Return the attention mass of each layer."""
        key = f"{kv.__name__} h2o"
        clock.seconds["scoring"] = self.clock.seconds.get(key, 0.0)
        return [self.scorers[kv, "h2o"].memory[layer] for layer in range(len(self.probes))]

    def judge(self, row: Row) -> None:
        """Ask the model what is left of its memory."""
        whole = row.way.system.name == "full"
        row.bits += self.whole_bits if whole else self.bits()
        row.found += self.found()
        moved, sizes = [], []
        for before, after in zip(self.whole, self.attended(), strict=True):
            moved.append((after.double() - before.double()).norm(dim=-1).flatten(1))
            sizes.append(before.double().norm(dim=-1).flatten(1))
        away, size = torch.cat(moved, 1), torch.cat(sizes, 1)
        row.deviation += away.mean(1).tolist()
        row.relative += (away.mean(1) / size.mean(1)).tolist()
        row.worst += away.amax(1).tolist()


def steps(documents: Sequence[Document], rows: Sequence[Way]) -> int:
    """Return how often `evaluate` calls `step`."""
    return len(batches(documents)) * len(rows)
