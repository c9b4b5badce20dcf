"""Expected attention on a model."""

from types import ModuleType
from typing import Any

import optimized
from optimized import QueryStatistics, Scored
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import require_attachment
from optimized.models.attention import decoder_of
from optimized.models.prefill import Prefilled, Step, unrotated
from optimized.models.scorer import PromptLayer, Scorer, Scores, lengths, options


class ExpectedAttention(Scorer):
    """Running mean and covariance of the queries before the rotary embedding."""

    name = "expected_attention"
    takes = (*options(optimized.expected_attention), "future")
    functions = (optimized.expected_attention, optimized.mean_rotation)
    colour = "#6b7d1c"

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        super().__init__(model, kv, **settings)
        if not require_attachment(model).shown.rotates:
            raise ValueError(
                "model must rotate its projected queries as Llama does, over the whole width and "
                f"in halves, for expected_attention, got {model.config.model_type!r}, which does "
                "not: use another scorer"
            )

    def remember(self, step: Step, past: QueryStatistics | None) -> QueryStatistics:
        """Add the chunk's queries to the statistics."""
        queries = unrotated(step)
        valid = None if step.valid is None else step.valid[:, -queries.shape[2] :]
        return self.kv.query_statistics(queries, self.settings.get("sinks", 4), valid, past)

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Compute the mean rotation of future positions, then return the scores."""
        rotary = decoder_of(self.model).get_submodule("rotary_emb")
        scaling = getattr(rotary, "attention_scaling", 1.0)
        kind = getattr(rotary, "rope_type", "default")
        if scaling != 1.0 or kind not in ("default", "linear", "llama3"):
            raise ValueError(
                "model must have a rotary embedding of type 'default', 'linear' or 'llama3' for "
                f"expected_attention, got {kind!r} with attention scaling {scaling}"
            )
        future = self.settings.get("future", 512)
        self.rotation = self.kv.mean_rotation(
            rotary.get_buffer("inv_freq"), lengths(prompt), future
        )
        return super().finish(prompt, keep)

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        chosen = {name: self.settings[name] for name in self.settings if name != "future"}
        statistics = self.memory[read.layer]
        return self.kv.expected_attention(
            statistics, read.keys, read.values, self.rotation, valid=read.valid, **chosen
        )
