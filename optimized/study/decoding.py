"""Measure caches that are compressed while the model reads on: HubKV §4.3, HEX §4.1."""

from collections.abc import Callable, Sequence
from copy import copy
from math import log

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from optimized.models.cache import AttendingCache
from optimized.models.compress_prompt import require_budget
from optimized.models.read_prompt import Inputs, reader_of
from optimized.study.documents import Document, Question
from optimized.study.measurements import MeasurementSettings, Row
from optimized.study.stage_clock import Clock
from reference.evict import tensors_within


class DecodingDocument:
    """A document, its continuation, and questions after both.

    The cache is that of `compressed` with an interval: it shrinks after the prompt, and after every
    interval of the continuation. A store holds the new tokens as it does while decoding. The
    continuation is given, not generated, so that all systems read the same tokens.
    """

    def __init__(
        self, model: PreTrainedModel, documents: Sequence[Document], settings: MeasurementSettings
    ) -> None:
        (self.document,) = documents
        self.model, self.settings = model, settings
        self.ids = torch.tensor([self.document.context], device=model.device)

    def measure(self, rows: Sequence[Row], step: Callable[[str], None]) -> None:
        """Measure every trial, and add the results to its row."""
        for row in rows:
            if row.refused is None:
                try:
                    self.read_on(row)
                except ValueError as refusal:
                    row.refused = " ".join(str(refusal).split())
            step(row.trial.system.name)

    def read_on(self, row: Row) -> None:
        """Read the document and its continuation, ask, and add what was found to a row."""
        document, clock = self.document, Clock(self.model.device)
        with clock.at("selecting"):
            cache = self.compressed(row)
            new = document.context[cache.get_seq_length() :] + document.continuation[:-1]
            by_token = row.trial.system.store is not None  # a store codes nothing that it reads now
            pieces = [[token] for token in new] if by_token else [new]
            read = torch.cat([self.logits(cache, piece, len(piece)) for piece in pieces])
        guesses = read[1 - len(document.continuation) :]
        row.seconds["selecting"] = row.seconds.get("selecting", 0.0) + clock.seconds["selecting"]
        right = torch.tensor(document.continuation[1:], device=guesses.device)
        nats = float(cross_entropy(guesses, right, reduction="sum"))
        row.bits.append(nats / log(2) / max(1, document.size))
        row.nbytes += half_precision_bytes([cache.layers, cache.states])
        last = document.continuation[-1:]
        row.found.append([self.found(cache, last, question) for question in document.questions])

    def found(self, cache: AttendingCache, last: list[int], question: Question) -> float:
        """Return 1 if greedy decoding answers a question token by token, otherwise 0."""
        asked = last + question.asked + question.answer[:-1]
        guesses = self.logits(copy(cache), asked, len(question.answer))
        return float(guesses.argmax(-1).tolist() == question.answer)

    def logits(self, cache: AttendingCache, new: list[int], count: int) -> Tensor:
        """Read new tokens into a cache, and return the logits after the last `count` of them."""
        ids = torch.tensor([new], device=self.model.device)
        with torch.inference_mode():
            read = self.model(input_ids=ids, past_key_values=cache, logits_to_keep=count)
        return read.logits[0].float()

    def compressed(self, row: Row) -> AttendingCache:
        """Return the cache of the prompt, which is compressed again while it grows."""
        trial, system = row.trial, row.trial.system
        interval = self.settings.interval if system.evicts else None
        require_budget(system, interval, trial.removed, trial.keep)
        return reader_of(system, interval)(
            model=self.model,
            system=system,
            scorer=None,
            hex_config=None,
            inputs=Inputs(self.ids, torch.ones_like(self.ids), {}),
            protected=None,
            exact=frozenset(),
            ratio=trial.removed,
            keep=trial.keep,
            interval=interval,
            settings={},
            chunk=None,
            reading=self.settings.reading,
            kv=self.settings.kv,
        ).read()


def half_precision_bytes(stored: object) -> int:
    """Return the bytes that an object keeps alive, with wider floats counted in 16 bits."""
    sizes: dict[int, int] = {}
    for tensor in tensors_within(stored, set()):
        storage, width = tensor.untyped_storage(), tensor.element_size()
        counted = min(width, 2) if tensor.is_floating_point() else width
        sizes[storage._cdata] = storage.nbytes() // width * counted
    return sum(sizes.values())
