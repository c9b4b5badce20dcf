"""Measure every system on every document; a document is read once and compressed repeatedly."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from optimized.models.eviction_cache import map_both
from optimized.models.layer import WindowLayer, reject_latent_attention
from optimized.models.prefill import prefill
from optimized.models.quantized import quantize_tokens, require_whole_groups, restore_tokens
from optimized.models.selection import kept_entries, warn_of_short_budgets
from optimized.models.systems import compares_queries
from optimized.study.controls import control_of, kept_by_budgets, stored_with_mask, with_keys
from optimized.study.decoding import DecodingDocument
from optimized.study.documents import Document
from optimized.study.measurements import MeasurementSettings, Row, Trial
from optimized.study.metrics import DocumentMetrics
from optimized.study.prompt_scorers import PromptScorers
from optimized.study.stage_clock import Clock

BATCH = 8
"""Number of documents in one batch."""


def evaluate(
    model: PreTrainedModel,
    documents: Sequence[Document],
    rows: Sequence[Trial],
    settings: MeasurementSettings,
    step: Callable[[str], None] = lambda _: None,
) -> list[Row]:
    """Return the measurements of every trial on every document; see `measured`."""
    found = [Row(trial) for trial in rows]
    for _, saved in measured(model, batches(documents), found, settings, step):
        add(found, saved)
    return found


def measured(
    model: PreTrainedModel,
    numbered: Mapping[int, Sequence[Document]],
    rows: Sequence[Row],
    settings: MeasurementSettings,
    step: Callable[[str], None] = lambda _: None,
    tokenizer: Any = None,
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Measure every trial on every batch.

    Args:
        model: an attached model.
        numbered: batches of documents by number.
        rows: a row for each trial; one that is refused so far is not measured.
        settings: the reading, the seed, the implementation.
        step: called with the name of a system after each of its measurements on a batch.
        tokenizer: the model's, for questions whose answers are generated.

    Yields:
        The number of a batch and the saved row of each trial.
    """
    for number, batch in numbered.items():
        new = [Row(row.trial, refused=row.refused) for row in rows]
        with torch.inference_mode():
            if settings.interval is not None:
                DecodingDocument(model, batch, settings).measure(new, step)
            else:
                trials = [row.trial for row in rows]
                Batch(model, batch, trials, settings, tokenizer).measure(new, step)
        yield number, [row.saved() for row in new]


def add(rows: Sequence[Row], saved: Sequence[dict[str, Any]]) -> None:
    """Add the measurements of a batch to each row."""
    for row, more in zip(rows, saved, strict=True):
        row.add(more)


def weights(numbered: Mapping[int, Sequence[Document]], rows: Sequence[Any]) -> list[float]:
    """Return the tokens of the batch for each call of `step` by `measured`, in order."""
    return [len(batch) * len(batch[0].context) for batch in numbered.values() for _ in rows]


def batches(documents: Sequence[Document], size: int = BATCH) -> dict[int, list[Document]]:
    """Return numbered batches of documents of one length, with as many questions each."""
    alike = groupby(documents, lambda document: (len(document.context), len(document.questions)))
    groups = [list(group) for _, group in alike]
    split = [group[k : k + size] for group in groups for k in range(0, len(group), size)]
    return dict(enumerate(split))


class Batch:
    """A batch of documents of one length, read once."""

    def __init__(
        self,
        model: PreTrainedModel,
        documents: Sequence[Document],
        rows: Sequence[Trial],
        settings: MeasurementSettings,
        tokenizer: Any = None,
    ) -> None:
        self.device, self.settings = model.device, settings
        ids = torch.tensor([document.context for document in documents], device=model.device)
        self.panel = PromptScorers(model, ids.shape[1], rows, settings, documents[0].number)
        asking = any(compares_queries(row.system, settings.reading) for row in rows)
        self.prompt = prefill(model, ids, watch=self.panel.watchers(), keep_queries=asking)
        self.cache = self.prompt.cache
        for layer in self.cache.layers:  # the papers' caches have 16 bits
            if getattr(layer, "keys", None) is not None and layer.keys.element_size() > 2:
                layer.keys, layer.values = map_both(Tensor.half, layer.keys, layer.values)
                if isinstance(layer, WindowLayer):
                    layer.held = []  # the last token is not removed any more
        self.judge = DocumentMetrics(model, self.prompt, documents, tokenizer)

    def measure(self, rows: Sequence[Row], step: Callable[[str], None]) -> None:
        """Measure every trial on this batch, and add the results to its row."""
        for row in rows:
            if row.refused is None:
                try:
                    with self.cache.undone():
                        self.compress(row)
                        self.ask(row)
                except (ValueError, MemoryError, RuntimeError) as refusal:
                    full = isinstance(refusal, torch.OutOfMemoryError)
                    full |= "can't allocate memory" in str(refusal)  # on a CPU
                    if isinstance(refusal, RuntimeError) and not full:
                        raise
                    row.refused = " ".join(str(refusal).split()) or "out of memory"
            step(row.trial.system.name)

    def compress(self, row: Row) -> None:
        """Compress the cache as a trial does, and add entries, bytes and seconds to its row."""
        trial, kv, clock = row.trial, self.settings.kv, Clock(self.device)
        entries = sum(layer.whole[0].shape[:-1].numel() for layer in self.cache.whole_layers())
        row.entries += entries
        if trial.system.evicts:
            kept = self.kept(trial, kv, clock)
            if self.settings.other is not None:
                twin = self.kept(trial, self.settings.other, Clock(self.device))
                row.differing += int((kept & ~twin).sum())
            row.digests.append(sha256(kept.cpu().numpy().tobytes()).hexdigest())
            row.kept += int(kept.sum())
            with clock.at("selecting"):
                self.cache.evict(list(kept), kv=kv)
        else:
            row.kept += entries
        stores = trial.system.store is not None
        row.nbytes += self.quantise(row, clock) if stores else self.cache.nbytes
        for stage, seconds in clock.seconds.items():
            row.seconds[stage] = row.seconds.get(stage, 0.0) + seconds

    def kept(self, trial: Trial, kv: ModuleType, clock: Clock) -> Tensor:
        """Return a mask of the entries that a trial keeps."""
        scores, clock.seconds["scoring"] = self.panel.scores(self.prompt, trial, kv)
        control = control_of(trial.system)
        with clock.at("selecting"):
            if control.budgets != "mean":
                return kept_by_budgets(scores, control.budgets, trial, kv)
            kv = with_keys(kv, control.keys, self.settings.seed)
            how = trial.removed, self.settings.reading, kv, trial.keep
            kept, short = kept_entries(trial.system, self.prompt, scores, *how)
        warn_of_short_budgets(trial.system, short, len(self.prompt.input_ids))
        return kept

    def quantise(self, row: Row, clock: Clock) -> int:
        """Replace the cache by the restored entries of a quantiser; return the stored bytes."""
        system, kv = row.trial.system, self.settings.kv
        reject_latent_attention(any(layer.expands for layer in self.cache.evictable()))
        require_whole_groups(system, self.judge.model.config, kv)
        windows = [one for one in self.cache.layers if isinstance(one, WindowLayer)]
        nbytes = kv.stored_bytes([windows, self.cache.states])
        digest = sha256()
        mass: list[Tensor | None] = [None] * len(self.cache.evictable())
        if system.scorer is not None:
            mass[:], clock.seconds["scoring"] = self.panel.mass(kv)
        mask = control_of(system).mask
        for layer, paid in zip(self.cache.evictable(), mass, strict=True):
            with clock.at("selecting"):
                reading = self.settings.reading
                held = quantize_tokens(system, *layer.whole, paid, reading, kv)
                if mask == "expander":
                    read = restore_tokens(system, held, reading, kv)
                    nbytes += kv.stored_bytes(held)
                else:
                    how = mask, self.settings.seed, kv
                    read, more = stored_with_mask(held, *layer.whole, *how)
                    nbytes += more
            layer.keys, layer.values = read
            digest.update(read[0].float().cpu().numpy().tobytes())
        row.digests.append(digest.hexdigest())
        return nbytes

    def ask(self, row: Row) -> None:
        """Measure bits per byte, the answers and the deviation of attention."""
        row.bits += self.judge.bits()
        row.found += self.judge.scores()
        moved, size = self.judge.deviations()
        row.deviation += moved.mean(1).tolist()
        row.relative += (moved.mean(1) / size.mean(1)).tolist()
        row.worst += moved.amax(1).tolist()
