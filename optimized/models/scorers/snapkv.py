"""SnapKV on a model."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.prefill import Step
from optimized.models.scorer import PromptLayer, Scorer


class SnapKV(Scorer):
    """Scores by the attention of the last queries; only those queries are stored."""

    name = "snapkv"
    takes = ("window", "kernel", "pooling")
    functions = (optimized.snapkv,)
    observing = looks_back = 32
    decodes = True
    colour = "#d0452f"

    def remember(self, step: Step, past: Tensor | None) -> Tensor:
        """Keep the last queries."""
        window = self.settings.get("window", self.observing)
        queries = step.queries if past is None else torch.cat([past, step.queries], 2)
        return queries[:, :, -window:].clone()

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        chosen = self.chosen("window", "kernel", "pooling")
        return self.kv.snapkv(self.memory[read.layer], read.keys, valid=read.valid, **chosen)

    @staticmethod
    def by_last_queries(
        kv: ModuleType, queries: Tensor, entries: tuple[Tensor, ...], **settings: Any
    ) -> Tensor:
        """Return the scores of all entries; heads are rows, since they may hold other tokens."""
        keys, _, present = entries
        groups = queries.unflatten(1, (keys.shape[1], -1))
        window = queries.shape[2]
        scored = kv.snapkv(groups, keys[:, :, None], valid=present, **settings, window=window)
        return scored.scores[:, :, 0]
