"""What each system costs a model: documents are read once, then compressed in every way."""

from collections.abc import Callable, Sequence
from itertools import groupby
from types import ModuleType

import torch
from torch import Tensor
from transformers import PreTrainedModel

from optimized.models.prefill import prefill
from optimized.models.selection import kept_entries, stored
from optimized.study.clock import Clock
from optimized.study.documents import Document
from optimized.study.judge import Judge
from optimized.study.panel import Panel
from optimized.study.rows import Row, Settings, Way

BATCH = 8
"""Documents read at a time."""


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

    Returns:
        A row for each of `rows`; one that a setting refuses on any document says why.
    """
    found = [Row(way) for way in rows]
    place = 0
    for batch in batches(documents):
        with torch.inference_mode():
            Batch(model, batch, rows, settings, place).measure(found, step)
        place += len(batch)
    return found


def steps(documents: Sequence[Document], rows: Sequence[Way]) -> int:
    """Return how often `evaluate` calls `step`."""
    return len(batches(documents)) * len(rows)


def batches(documents: Sequence[Document]) -> list[list[Document]]:
    """Put documents of one length together, a few at a time."""
    alike = (list(some) for _, some in groupby(documents, lambda one: len(one.context)))
    return [some[at : at + BATCH] for some in alike for at in range(0, len(some), BATCH)]


class Batch:
    """Some documents of one length, read once."""

    def __init__(
        self,
        model: PreTrainedModel,
        documents: Sequence[Document],
        rows: Sequence[Way],
        settings: Settings,
        place: int = 0,
    ) -> None:
        self.device, self.settings = model.device, settings
        ids = torch.tensor([document.context for document in documents], device=model.device)
        self.panel = Panel(model, ids.shape[1], rows, settings, place)
        self.prompt = prefill(model, ids, watch=self.panel.watchers())
        self.cache = self.prompt.cache
        for layer in self.cache.evictable():  # in 16 bits, as in the papers, whatever the model is
            keys, values = layer.whole
            if keys.element_size() > 2:
                layer.keys, layer.values = keys.half(), values.half()
        self.judge = Judge(model, self.prompt, documents)

    def measure(self, rows: Sequence[Row], step: Callable[[str], None]) -> None:
        """Measure every way, and add what is found to its row."""
        for row in rows:
            if row.refused is None:
                try:
                    with self.cache.undone():
                        self.compress(row)
                        self.ask(row)
                except ValueError as refusal:
                    row.refused = " ".join(str(refusal).split())
            step(row.way.system.name)

    def compress(self, row: Row) -> None:
        """Compress the cache in one way."""
        way, kv, clock = row.way, self.settings.kv, Clock(self.device)
        entries = sum(layer.whole[0].shape[:-1].numel() for layer in self.cache.whole_layers())
        row.entries += entries
        if way.system.evicts:
            kept = self.kept(way, kv, clock)
            if self.settings.other is not None:
                twin = self.kept(way, self.settings.other, Clock(self.device))
                row.differing += int((kept & ~twin).sum())
            row.digest.update(kept.cpu().numpy().tobytes())
            row.kept += int(kept.sum())
            with clock.at("selecting"):
                self.cache.evict(list(kept), kv=kv)
            row.nbytes += self.cache.nbytes
        elif way.system.store is not None:
            row.kept += entries
            row.nbytes += self.store(row, clock)
        else:
            row.kept += entries
            row.nbytes += self.cache.nbytes
        for stage, seconds in clock.seconds.items():
            row.seconds[stage] = row.seconds.get(stage, 0.0) + seconds

    def kept(self, way: Way, kv: ModuleType, clock: Clock) -> Tensor:
        """Return which entries one way keeps."""
        assert way.ratio is not None
        scores, clock.seconds["scoring"] = self.panel.scores(self.prompt, way, kv)
        reading = self.settings.reading
        return kept_entries(way.system, self.prompt, scores, way.ratio, reading, kv, clock)

    def store(self, row: Row, clock: Clock) -> int:
        """Put what a quantiser restores in place of the cache, and return the bytes it stores."""
        system, kv, mass = row.way.system, self.settings.kv, None
        if system.scorer is not None:
            mass, clock.seconds["scoring"] = self.panel.mass(kv)
        with clock.at("selecting"):
            read = stored(system, self.prompt, mass, self.settings.reading, kv)
        for layer, (keys, values) in zip(self.cache.evictable(), read.layers, strict=True):
            row.digest.update(keys.float().cpu().numpy().tobytes())
            layer.keys, layer.values = keys, values
        return read.nbytes

    def ask(self, row: Row) -> None:
        """Ask the model what is left of its memory."""
        row.bits += self.judge.bits()
        row.found += self.judge.found()
        moved, size = self.judge.deviations()
        row.deviation += moved.mean(1).tolist()
        row.relative += (moved.mean(1) / size.mean(1)).tolist()
        row.worst += moved.amax(1).tolist()
