"""StreamingLLM on a model."""

from types import ModuleType

from torch import Tensor

import optimized
from optimized import Scored
from optimized.models.scorer import Arriving, ReadLayer, Scorer, options


class StreamingLLM(Scorer):
    """The first tokens and the last ones."""

    name = "streaming_llm"
    takes = options(optimized.streaming_llm)
    functions = (optimized.streaming_llm,)
    decodes = True
    colour = "#b07a2a"

    def scored(self, read: ReadLayer) -> Scored:
        """Score one layer."""
        return self.kv.streaming_llm(read.keys, valid=read.valid, **self.settings)

    @staticmethod
    def arriving(kv: ModuleType, new: Arriving) -> Tensor:
        """Score by position."""
        return kv.streaming_llm(new.keys, valid=new.valid).scores + new.before
