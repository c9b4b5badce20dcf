"""H2O on a model."""

from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.prefill import Step
from optimized.models.scorer import PromptLayer, Scorer, options


class H2O(Scorer):
    """Scores by attention mass, summed chunk by chunk."""

    name = "h2o"
    takes = options(optimized.h2o)
    functions = (optimized.h2o,)
    budgeted = True
    decodes = True
    colour = "#7a52c7"

    def remember(self, step: Step, past: Tensor | None) -> Tensor:
        """Add the attention mass of the chunk's queries."""
        return self.kv.h2o_mass(step.queries, step.keys, past, step.valid)

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        return self.kv.h2o(self.memory[read.layer], read.keep, read.valid, **self.settings)
