"""StreamingLLM on a model."""

from types import ModuleType

from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.scorer import NewTokens, PromptLayer, Scorer, options


class StreamingLLM(Scorer):
    """Scores by position: the first tokens and the last ones are kept."""

    name = "streaming_llm"
    takes = options(optimized.streaming_llm)
    functions = (optimized.streaming_llm,)
    decodes = True
    colour = "#b07a2a"

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        return self.kv.streaming_llm(read.keys, valid=read.valid, **self.settings)

    @staticmethod
    def arriving(kv: ModuleType, new: NewTokens) -> Tensor:
        """Return the scores of new tokens by their positions."""
        return kv.streaming_llm(new.keys, valid=new.valid).scores + new.before
