"""Scorers that let the last queries of a prompt observe the rest."""

import torch
from torch import Tensor

from optimized import Scored
from optimized.models.prefill import Prefilled, Step
from optimized.models.scorer import Scorer, Told, lengths


class SnapKV(Scorer):
    """The last queries' attention; only they are remembered."""

    takes = ("window", "kernel", "pooling")
    watching = True

    @property
    def window(self) -> int:
        """How many queries observe."""
        return self.settings.get("window", 32)

    def watch(self, step: Step) -> None:
        """Remember the last queries."""
        past = self.past(step)
        queries = step.queries if past is None else torch.cat([past, step.queries], 2)
        self.memory[step.layer] = queries[:, :, -self.window :].clone()

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        chosen = self.chosen("window", "kernel", "pooling")
        return self.kv.snapkv(self.memory[told.layer], told.keys, valid=told.valid, **chosen)


class PyramidKV(SnapKV):
    """SnapKV's scores, budgets that shrink from layer to layer."""

    takes = (*SnapKV.takes, "beta", "exact")

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor:
        """Follow the line from the first layer to the last."""
        chosen = self.chosen("window", "beta", "exact")
        layers = self.model.config.num_hidden_layers
        return self.kv.pyramidkv_budgets(keep, layers, lengths(prompt), **chosen)


class Cake(SnapKV):
    """Mean and variance of the last queries' attention, budgets by the layers' preference."""

    takes = ("window", "kernel", "gamma", "tau1", "tau2", "exact")

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        chosen = self.chosen("window", "gamma", "kernel")
        return self.kv.cake(self.memory[told.layer], told.keys, valid=told.valid, **chosen)

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor:
        """Share in proportion to the preferences."""
        chosen = self.chosen("window", "tau1", "tau2")
        layers = enumerate(prompt.cache.whole_layers())
        wishes = [
            self.kv.cake_preference(
                self.memory[index], layer.whole[0], valid=prompt.valid, **chosen
            )
            for index, layer in layers
        ]
        chosen = self.chosen("window", "exact")
        return self.kv.cake_budgets(torch.stack(wishes), keep, lengths(prompt), **chosen)
