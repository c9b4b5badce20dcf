"""Measure a compressed cache: bits of following text, found facts, deviation of attention."""

from collections.abc import Callable, Sequence
from math import log
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from optimized.models.attention import Softmax
from optimized.models.eviction_cache import EvictionCache, EvictionLayer
from optimized.models.prefill import Prefilled, Step, install_watchers
from optimized.study.documents import Document, Question
from optimized.study.own_data import METRICS

PROBES = 32
"""Number of queries after the prompt whose attention is compared."""
LONGEST = 64
"""Most tokens of a generated answer."""


class Probe(NamedTuple):
    """The first queries after the prompt in one layer, with their keys and values."""

    queries: Tensor
    keys: Tensor
    values: Tensor


class DocumentMetrics:
    """Measurements of a model on documents that it has read, with any state of their cache."""

    def __init__(
        self,
        model: PreTrainedModel,
        prompt: Prefilled,
        documents: Sequence[Document],
        tokenizer: Any = None,
    ) -> None:
        self.model, self.cache, self.documents = model, prompt.cache, documents
        self.tokenizer = tokenizer
        self.probes: list[Probe] = []
        with install_watchers(model, prompt.cache, [self.remember]):
            self.probe()
        self.whole = attention_outputs(self.cache, self.probes)

    def probe(self) -> None:
        """Read what follows the prompt: the continuation, or else the first question."""
        following = [
            document.continuation or document.questions[0].asked for document in self.documents
        ]
        self.logits(self.tensor(following)[:, : PROBES + 1], torch.tensor([0]))

    def remember(self, step: Step) -> None:
        """Store the first queries after the prompt, with their own keys and values."""
        new = step.queries.shape[2]
        count = min(PROBES, new)
        keys, values = (x[:, :, -new:][:, :, :count].clone() for x in (step.keys, step.values))
        self.probes.append(Probe(step.queries[:, :, :count].clone(), keys, values))

    def tensor(self, rows: Sequence[list[int]]) -> Tensor:
        """Return rows of tokens, padded on the right, where no real token sees the padding."""
        longest = max(map(len, rows))
        filled = [row + row[-1:] * (longest - len(row)) for row in rows]
        return torch.tensor(filled, device=self.model.device)

    def logits(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Return the logits at the wanted columns of more tokens, and restore the cache.

        The rows are questions about the documents, as many about each.
        """
        with self.cache.undone():
            if len(ids) > len(self.documents):
                self.cache.batch_repeat_interleave(len(ids) // len(self.documents))
            return self.read(ids, wanted)

    def read(self, ids: Tensor, wanted: Tensor) -> Tensor:
        """Read more tokens, and return the logits at the wanted columns."""
        start = self.cache.get_seq_length()
        positions = torch.arange(start, start + ids.shape[1], device=ids.device)
        return self.model(
            input_ids=ids,
            position_ids=positions.expand(ids.shape),
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=wanted.to(ids.device),
        ).logits.float()

    def bits(self) -> list[float]:
        """Return the bits per byte of each continuation, after its first token."""
        if not self.documents[0].continuation:
            return []
        ids = self.tensor([document.continuation for document in self.documents])
        logits = self.logits(ids[:, :-1], torch.arange(ids.shape[1] - 1))
        nats = cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        nats = nats.cpu().double().sum(-1)
        sizes = (max(1, document.size) for document in self.documents)
        return [total / log(2) / size for total, size in zip(nats.tolist(), sizes, strict=True)]

    def scores(self) -> list[list[float]]:
        """Return the score of the greedy answer to each question of each document."""
        if any(question.answers for document in self.documents for question in document.questions):
            (document,) = self.documents
            return [[self.generated(question) for question in document.questions]]
        return self.found()

    def found(self) -> list[list[float]]:
        """Return 1 for each question that greedy decoding answers token by token, otherwise 0."""
        every = [question for document in self.documents for question in document.questions]
        if not every:
            return [[] for _ in self.documents]
        ids = self.tensor([question.asked + question.answer for question in every])
        first = min(len(question.asked) for question in every) - 1
        guesses = self.logits(ids[:, :-1], torch.arange(first, ids.shape[1] - 1)).argmax(-1)
        right = []
        for guess, question in zip(guesses.tolist(), every, strict=True):
            begin = len(question.asked) - 1 - first
            right.append(float(guess[begin : begin + len(question.answer)] == question.answer))
        count = len(every) // len(self.documents)
        return [right[k : k + count] for k in range(0, len(right), count)]

    def generated(self, question: Question) -> float:
        """Return the score of the generated answer to a question, by the metric of its kind."""
        text = self.greedy(question.asked, lambda _: False, LONGEST)
        return METRICS[question.kind](text, question.answers)

    def greedy(self, asked: list[int], ends: Callable[[str], bool], most: int) -> str:
        """Return the greedy answer until the model ends it, `ends` is true of it, or `most` tokens.

        The documents must be one.
        """
        said: list[int] = []
        last, new = torch.tensor([-1]), torch.tensor([asked], device=self.model.device)
        stops = self.model.generation_config.eos_token_id
        stops = stops if isinstance(stops, list) else [stops]
        with self.cache.undone():
            while len(said) < most and not ends(self.tokenizer.decode(said)):
                column = last + new.shape[1]
                token = int(self.read(new, column)[0, -1].argmax())
                if token in stops:
                    break
                said.append(token)
                new = new.new_tensor([[token]])
        return str(self.tokenizer.decode(said, skip_special_tokens=True)).strip()

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
