"""KNorm on a model."""

from types import ModuleType

from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.scorer import NewTokens, PromptLayer, Scorer, options


class KNorm(Scorer):
    """Scores by the negative key norm: short keys are kept first."""

    name = "knorm"
    takes = options(optimized.knorm)
    functions = (optimized.knorm,)
    negative = True
    decodes = True
    colour = "#3c9a46"

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        return self.kv.knorm(read.keys, valid=read.valid, **self.settings)

    @staticmethod
    def arriving(kv: ModuleType, new: NewTokens) -> Tensor:
        """Return the scores of new tokens by their key norms."""
        return kv.knorm(new.keys, valid=new.valid).scores
