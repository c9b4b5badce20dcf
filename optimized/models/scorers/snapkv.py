"""SnapKV on a model."""

import torch

import optimized
from optimized import Scored
from optimized.models.prefill import Step
from optimized.models.scorer import PromptLayer, Scorer


class SnapKV(Scorer):
    """Scores by the attention of the last queries; only those queries are stored."""

    name = "snapkv"
    takes = ("window", "kernel", "pooling")
    functions = (optimized.snapkv,)
    watching = True
    observing = 32
    colour = "#d0452f"

    def watch(self, step: Step) -> None:
        """Store the last queries."""
        past, window = self.past(step), self.settings.get("window", self.observing)
        queries = step.queries if past is None else torch.cat([past, step.queries], 2)
        self.memory[step.layer] = queries[:, :, -window:].clone()

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        chosen = self.chosen("window", "kernel", "pooling")
        return self.kv.snapkv(self.memory[read.layer], read.keys, valid=read.valid, **chosen)
