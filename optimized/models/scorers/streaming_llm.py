"""StreamingLLM on a model."""

import optimized
from optimized import Scored
from optimized.models.scorer import ReadLayer, Scorer, options


class StreamingLLM(Scorer):
    """The first tokens and the last ones."""

    name = "streaming_llm"
    takes = options(optimized.streaming_llm)
    colour = "#b07a2a"

    def scored(self, read: ReadLayer) -> Scored:
        """Score one layer."""
        return self.kv.streaming_llm(read.keys, valid=read.valid, **self.settings)
