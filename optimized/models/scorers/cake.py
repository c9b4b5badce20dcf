"""CAKE on a model."""

import torch
from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.prefill import Prefilled
from optimized.models.scorer import PromptLayer, lengths
from optimized.models.scorers.snapkv import SnapKV


class Cake(SnapKV):
    """Scores by mean and variance of the last queries' attention; budgets by layer preference."""

    name = "cake"
    takes = ("window", "kernel", "gamma", "tau1", "tau2", "exact")
    functions = (optimized.cake, optimized.cake_preference, optimized.cake_budgets)
    budgeted = True
    least = 2
    sharing = "E-G42"
    by_head = False
    decodes = False
    colour = "#c9459b"

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        chosen = self.chosen("window", "gamma", "kernel")
        return self.kv.cake(self.memory[read.layer], read.keys, valid=read.valid, **chosen)

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor:
        """Return layer budgets in proportion to the layers' preferences."""
        chosen = self.chosen("window", "tau1", "tau2")
        layers = enumerate(prompt.cache.whole_layers())
        wishes = [
            self.kv.cake_preference(
                self.memory[index], layer.whole[0], valid=layer.beside(prompt.valid), **chosen
            ).to(prompt.input_ids.device)
            for index, layer in layers
        ]
        chosen = self.chosen("window", "exact")
        return self.kv.cake_budgets(torch.stack(wishes), keep, lengths(prompt), **chosen)
