"""FastKVzip on a model."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized import Scored
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.layer import count_full_attention_layers
from optimized.models.prefill import Step
from optimized.models.scorer import NewTokens, PromptLayer, Scorer, ends
from optimized.models.tensor_parallel import group_of, own_heads


class FastKVzip(Scorer):
    """Scores by a FastKVzip gate for each layer, on the hidden states at its attention's input.

    The setting `weights` holds a `GateWeights` for each layer that sees the whole text.
    """

    name = "fastkvzip"
    takes = ("weights", "sinks", "recent")
    functions = (optimized.fastkvzip,)
    scope = "model"
    gated = True
    decodes = True
    colour = "#12a5b5"

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        super().__init__(model, kv, **settings)
        require_gates(settings.get("weights"), count_full_attention_layers(model.config))

    def remember(self, step: Step, past: Tensor | None) -> Tensor:
        """Score the chunk; a token's score does not depend on other tokens."""
        gate = step.cache.evictable()[step.layer].beside(self.settings["weights"][step.layer])
        scores = self.kv.fastkvzip(step.hidden, gate, sinks=0, recent=0).scores
        return scores if past is None else torch.cat([past, scores], -1)

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens."""
        scores = own_heads(group_of(self.model), self.memory[read.layer])  # gates score all heads
        if read.valid is not None:
            scores = scores.masked_fill(~read.valid[:, None], 0)
        return Scored(scores, ends(read, **self.chosen("sinks", "recent")))

    @staticmethod
    def arriving(kv: ModuleType, new: NewTokens) -> Tensor:
        """Return the scores that the FastKVzip gate gives new tokens."""
        return kv.fastkvzip(new.hidden, new.gate, valid=new.valid).scores


def require_gates(weights: Any, layers: int) -> None:
    """Refuse to score without a FastKVzip gate for each layer."""
    if not weights:
        raise ValueError(
            "fastkvzip must have gates that were trained for the model, got none: train them with "
            "`optimized.models.fastkvzip_gates.learn_gates(model, prompts)`, and pass them as "
            "settings={'weights': gates} or write them into the model's folder with `save_gates`"
        )
    checks.require_one_per_layer("weights", weights, layers)
