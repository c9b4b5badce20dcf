"""Expected attention on a model."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

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
    decodes = True
    looks_back = 32
    needs = ("frequencies",)
    colour = "#6b7d1c"

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        super().__init__(model, kv, **settings)
        require_rotated_queries(model)

    def remember(self, step: Step, past: QueryStatistics | None) -> QueryStatistics:
        """Add the chunk's queries to the statistics."""
        queries = unrotated(step)
        valid = None if step.valid is None else step.valid[:, -queries.shape[2] :]
        return self.kv.query_statistics(queries, self.settings.get("sinks", 4), valid, past)

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Compute the mean rotation of future positions, then return the scores."""
        future = self.settings.get("future", 512)
        frequencies = self.of_model(self.model)["frequencies"]
        self.rotation = self.kv.mean_rotation(frequencies, lengths(prompt), future)
        return super().finish(prompt, keep)

    @classmethod
    def of_model(cls, model: PreTrainedModel) -> dict[str, Any]:
        """Return the frequencies of the rotary embedding."""
        require_rotated_queries(model)
        rotary = decoder_of(model).get_submodule("rotary_emb")
        scaling = getattr(rotary, "attention_scaling", 1.0)
        kind = getattr(rotary, "rope_type", "default")
        if scaling != 1.0 or kind not in ("default", "linear", "llama3"):
            raise ValueError(
                "model must have a rotary embedding of type 'default', 'linear' or 'llama3' for "
                f"expected_attention, got {kind!r} with attention scaling {scaling}"
            )
        return {"frequencies": rotary.get_buffer("inv_freq")}

    @staticmethod
    def by_last_queries(
        kv: ModuleType,
        queries: Tensor,
        entries: tuple[Tensor, ...],
        *,
        frequencies: Tensor,
        future: int = 512,
        **settings: Any,
    ) -> Tensor:
        """Return the scores of all entries; heads are rows, since they may hold other tokens.

        Positions are counted from the first query of the window. Only distances matter, so the
        queries of the window are turned back to it, and the positions to come start behind them.
        """
        (keys, values, present), window = entries, queries.shape[2]
        frequencies = frequencies.to(keys.device)
        turns = kv.mean_rotation(frequencies, torch.arange(window, device=queries.device), 1)
        back = (queries.to(turns.dtype)[..., None, :] @ turns)[..., 0, :]
        groups, real = back.unflatten(1, (keys.shape[1], -1)), present[..., -window:]
        statistics = kv.query_statistics(groups, 0, real)
        rotation = kv.mean_rotation(frequencies, window, future)
        stored = keys[:, :, None], values[:, :, None]
        scored = kv.expected_attention(statistics, *stored, rotation, valid=present, **settings)
        return scored.scores[:, :, 0]

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        chosen = {name: self.settings[name] for name in self.settings if name != "future"}
        statistics, rotation = self.memory[read.layer], self.rotation.to(read.keys.device)
        return self.kv.expected_attention(
            statistics, read.keys, read.values, rotation, valid=read.valid, **chosen
        )


def require_rotated_queries(model: PreTrainedModel) -> None:
    """Refuse a model whose queries are not projected and rotated as Llama's are."""
    if not require_attachment(model).shown.rotates:
        raise ValueError(
            "model must rotate its projected queries as Llama does, over the whole width and in "
            f"halves, for expected_attention, got {model.config.model_type!r}, which does not: use "
            "another scorer"
        )
