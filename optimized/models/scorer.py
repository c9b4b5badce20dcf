"""What a scorer keeps of a prompt while it is read, and returns at its end."""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from optimized import Scored
from optimized.models.prefill import Prefilled, Step


class Scores(NamedTuple):
    """What a scorer says of a prompt."""

    scored: tuple[Scored, ...]
    """One for each layer."""
    budgets: Int[Tensor, "layers batch"] | None
    """What a head of each layer keeps, where the scorer shares the budget among layers."""


class Told(NamedTuple):
    """What every scorer may ask about one layer at the end of a prompt."""

    layer: int
    keys: Float[Tensor, "batch kv_heads tokens width"]
    values: Float[Tensor, "batch kv_heads tokens width"]
    valid: Bool[Tensor, "batch tokens"] | None
    keep: int


class Scorer:
    """A scorer before and while a prompt is read; the next prompt starts afresh.

    Args:
        model: the attached model.
        kv: `reference` or `optimized`.
        settings: what the scorer's functions take beside tensors.
    """

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        self.model, self.kv, self.settings = model, kv, settings
        self.memory: dict[int, Any] = {}

    def watch(self, step: Step) -> None:
        """Remember what is needed of one layer's part of a chunk."""

    def past(self, step: Step) -> Any:
        """Return what is remembered of a layer; at the first chunk of a prompt, nothing."""
        first = step.queries.shape[2] == step.keys.shape[2]
        return None if first else self.memory.get(step.layer)

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Score the prompt that was watched.

        Args:
            prompt: what `prefill` returned, nothing evicted yet.
            keep: mean budget of a head.
        """
        layers = enumerate(layer.whole for layer in prompt.cache.whole_layers())
        told = (Told(index, *held, prompt.valid, keep) for index, held in layers)
        return Scores(tuple(map(self.scored, told)), self.budgets(prompt, keep))

    def scored(self, told: Told) -> Scored:
        """Score the tokens of one layer."""
        raise NotImplementedError

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return those of the settings that a function takes."""
        return {name: self.settings[name] for name in names if name in self.settings}

    def budgets(self, prompt: Prefilled, keep: int) -> Tensor | None:
        """Share the budget among the layers, or leave it to the caller."""
        del prompt, keep


def lengths(prompt: Prefilled) -> Int[Tensor, " batch"]:
    """Return how many real tokens each row of a prompt has."""
    if prompt.valid is not None:
        return prompt.valid.sum(-1)
    batch, tokens = prompt.input_ids.shape
    return torch.full((batch,), tokens, device=prompt.input_ids.device)


def ends(
    kv: ModuleType,
    keys: Tensor,
    valid: Tensor | None,
    sinks: int = 4,
    recent: int | None = None,
) -> Tensor:
    """Protect the first and the last real tokens of each row."""
    tokens = keys.shape[2]
    protected = torch.zeros(keys.shape[:-1], dtype=torch.bool, device=keys.device)
    for row in range(keys.shape[0]):
        count = tokens if valid is None else int(valid[row].sum())
        protected[row, :, tokens - count :] = kv.protected_mask(count, sinks, recent)
    return protected
