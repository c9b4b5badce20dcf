"""H2O on a model."""

import optimized
from optimized import Scored
from optimized.models.prefill import Step
from optimized.models.scorer import PromptLayer, Scorer, options


class H2O(Scorer):
    """Scores by attention mass, summed chunk by chunk."""

    name = "h2o"
    takes = options(optimized.h2o)
    functions = (optimized.h2o,)
    watching = True
    budgeted = True
    decodes = True
    colour = "#7a52c7"

    def watch(self, step: Step) -> None:
        """Add the attention mass of the chunk's queries."""
        past = self.past(step)
        self.memory[step.layer] = self.kv.h2o_mass(step.queries, step.keys, past, step.valid)

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        return self.kv.h2o(self.memory[read.layer], read.keep, read.valid, **self.settings)
