"""KNorm on a model."""

from types import ModuleType

from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.scorer import Arriving, ReadLayer, Scorer, options


class KNorm(Scorer):
    """Short keys first."""

    name = "knorm"
    takes = options(optimized.knorm)
    functions = (optimized.knorm,)
    negative = True
    decodes = True
    colour = "#3c9a46"

    def scored(self, read: ReadLayer) -> Scored:
        """Score one layer."""
        return self.kv.knorm(read.keys, valid=read.valid, **self.settings)

    @staticmethod
    def arriving(kv: ModuleType, new: Arriving) -> Tensor:
        """Score by the length of keys."""
        return kv.knorm(new.keys, valid=new.valid).scores
