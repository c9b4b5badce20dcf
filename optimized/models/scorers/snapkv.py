"""SnapKV on a model."""

import torch

import optimized
from optimized import Scored
from optimized.models.prefill import Step
from optimized.models.scorer import ReadLayer, Scorer


class SnapKV(Scorer):
    """The last queries' attention; only they are remembered."""

    name = "snapkv"
    takes = ("window", "kernel", "pooling")
    functions = (optimized.snapkv,)
    watching = True
    observing = 32
    colour = "#d0452f"

    def watch(self, step: Step) -> None:
        """Remember the last queries."""
        past, window = self.past(step), self.settings.get("window", self.observing)
        queries = step.queries if past is None else torch.cat([past, step.queries], 2)
        self.memory[step.layer] = queries[:, :, -window:].clone()

    def scored(self, read: ReadLayer) -> Scored:
        """Score one layer."""
        chosen = self.chosen("window", "kernel", "pooling")
        return self.kv.snapkv(self.memory[read.layer], read.keys, valid=read.valid, **chosen)
