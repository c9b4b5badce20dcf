"""KNorm on a model."""

import optimized
from optimized import Scored
from optimized.models.scorer import ReadLayer, Scorer, options


class KNorm(Scorer):
    """Short keys first."""

    name = "knorm"
    takes = options(optimized.knorm)
    colour = "#3c9a46"

    def scored(self, read: ReadLayer) -> Scored:
        """Score one layer."""
        return self.kv.knorm(read.keys, valid=read.valid, **self.settings)
