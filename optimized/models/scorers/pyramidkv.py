"""PyramidKV on a model."""

from torch import Tensor

import optimized
from optimized.models.prefill import Prefilled
from optimized.models.scorer import lengths
from optimized.models.scorers.snapkv import SnapKV


class PyramidKV(SnapKV):
    """SnapKV's scores, with budgets that shrink from layer to layer."""

    name = "pyramidkv"
    takes = (*SnapKV.takes, "beta", "exact")
    functions = (*SnapKV.functions, optimized.pyramidkv_budgets)
    budgeted = True
    sharing = "E-G32"
    decodes = False
    colour = "#e08a1e"

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor:
        """Return layer budgets on a line from the first layer to the last."""
        chosen = self.chosen("window", "beta", "exact")
        layers = len(prompt.cache.evictable())
        return self.kv.pyramidkv_budgets(keep, layers, lengths(prompt), **chosen)
