"""Measure a compressed cache: bits of following text, found facts, deviation of attention."""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from optimized.models.attention import Softmax
from optimized.models.eviction_cache import EvictionCache, EvictionLayer
from optimized.models.prefill import Prefilled, Step, install_watchers
from optimized.study.documents import Document

PROBES = 32
"""Number of queries after the prompt whose attention is compared."""


class Probe(NamedTuple):
    """The first queries after the prompt in one layer, with their keys and values."""

    queries: Tensor
    keys: Tensor
    values: Tensor


class DocumentMetrics:
    """Measurements of a model on documents that it has read, with any state of their cache."""

    def __init__(
        self, model: PreTrainedModel, prompt: Prefilled, documents: Sequence[Document]
    ) -> None:
        self.model, self.cache, self.documents = model, prompt.cache, documents
        self.probes: list[Probe] = []
        with install_watchers(model, prompt.cache, [self.remember]):
            self.bits()
        self.whole = attention_outputs(self.cache, self.probes)

    def remember(self, step: Step) -> None:
        """Store the first queries after the prompt, with their own keys and values."""
        new = step.queries.shape[2]
        count = min(PROBES, new)
        keys, values = (x[:, :, -new:][:, :, :count].clone() for x in (step.keys, step.values))
        self.probes.append(Probe(step.queries[:, :, :count].clone(), keys, values))

    def tensor(self, rows: list[list[int]]) -> Tensor:
        """Return rows of tokens, padded on the right, where no real token sees the padding."""
        longest = max(map(len, rows))
        filled = [row + row[-1:] * (longest - len(row)) for row in rows]
        return torch.tensor(filled, device=self.model.device)

    def logits(self, ids: Tensor) -> Tensor:
        """Return the logits of more tokens, and restore the cache."""
        start = self.cache.get_seq_length()
        places = torch.arange(start, start + ids.shape[1], device=ids.device)
        with self.cache.undone():
            return self.model(
                input_ids=ids,
                position_ids=places.expand(ids.shape),
                past_key_values=self.cache,
                use_cache=True,
            ).logits.float()

    def bits(self) -> list[float]:
        """Return the bits per byte of each continuation, after its first token."""
        ids = self.tensor([document.continuation for document in self.documents])
        logits = self.logits(ids[:, :-1])
        nats = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        nats = nats.cpu().double().sum(-1)
        sizes = (max(1, document.size) for document in self.documents)
        return [total / log(2) / size for total, size in zip(nats.tolist(), sizes, strict=True)]

    def found(self) -> list[list[bool]]:
        """Return which questions of each document greedy decoding answers correctly."""
        right: list[list[bool]] = [[] for _ in self.documents]
        for asked in zip(*(document.questions for document in self.documents), strict=True):
            rows = [question.asked + question.answer for question in asked]
            ids = self.tensor(rows)
            guesses = self.logits(ids[:, :-1]).argmax(-1)
            for row, question in enumerate(asked):
                place = slice(len(question.asked) - 1, len(rows[row]) - 1)
                right[row].append(guesses[row, place].tolist() == question.answer)
        return right

    def deviations(self) -> tuple[Tensor, Tensor]:
        """Return the distance of attention outputs from the full cache's, and the latter's norms.

        Both have a row for each document, and a column for each layer, head and query.
        """
        moved, sizes = [], []
        for before, after in zip(
            self.whole, attention_outputs(self.cache, self.probes), strict=True
        ):
            before, after = before.cpu().double(), after.cpu().double()
            moved.append((after - before).norm(dim=-1).flatten(1))
            sizes.append(before.norm(dim=-1).flatten(1))
        return torch.cat(moved, 1), torch.cat(sizes, 1)


def attention_outputs(cache: EvictionCache, probes: Sequence[Probe]) -> list[Tensor]:
    """Return the attention outputs of the probes over a cache, layer by layer.

    Latent rows are used directly as keys and values, not expanded.
    """
    out = []
    with cache.undone():
        for layer, probe in zip(cache.evictable(), probes, strict=True):
            softmax = Softmax(probe.queries.shape[-1] ** -0.5)
            EvictionLayer.update(layer, probe.keys, probe.values)
            out.append(EvictionLayer.attend(layer, probe.queries, None, softmax))
    return out
