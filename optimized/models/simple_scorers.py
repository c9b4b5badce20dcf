"""Scorers that read a prompt once and need little of it."""

from types import ModuleType
from typing import Any

import torch
from transformers import PreTrainedModel

import optimized
from optimized import Scored
from optimized.models import errors as refuse
from optimized.models.prefill import Prefilled, Step, unrotated
from optimized.models.scorer import Scorer, Scores, Told, ends, lengths, options


class Random(Scorer):
    """Uniform noise, the same for the same seed on every device."""

    takes = ("seed",)

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        draw = torch.Generator().manual_seed(self.settings.get("seed", 0) * 1_000_003 + told.layer)
        scores = torch.rand(told.keys.shape[:-1], generator=draw).to(told.keys.device)
        if told.valid is not None:
            scores = scores.masked_fill(~told.valid[:, None], 0)
        return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


class StreamingLLM(Scorer):
    """The first tokens and the last ones."""

    takes = options(optimized.streaming_llm)

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        return self.kv.streaming_llm(told.keys, valid=told.valid, **self.settings)


class KNorm(Scorer):
    """Short keys first."""

    takes = options(optimized.knorm)

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        return self.kv.knorm(told.keys, valid=told.valid, **self.settings)


class H2O(Scorer):
    """Attention mass, added up chunk by chunk."""

    takes = options(optimized.h2o)
    watching = True

    def watch(self, step: Step) -> None:
        """Add what the chunk's queries pay."""
        past = self.past(step)
        self.memory[step.layer] = self.kv.h2o_mass(step.queries, step.keys, past, step.valid)

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        return self.kv.h2o(self.memory[told.layer], told.keep, told.valid, **self.settings)


class ExpectedAttention(Scorer):
    """Running mean and covariance of the queries before the rotary embedding."""

    takes = (*options(optimized.expected_attention), "future")
    watching = True

    def watch(self, step: Step) -> None:
        """Add the chunk's queries to the statistics."""
        queries = unrotated(step)
        valid = None if step.valid is None else step.valid[:, -queries.shape[2] :]
        sinks, past = self.settings.get("sinks", 4), self.past(step)
        self.memory[step.layer] = self.kv.query_statistics(queries, sinks, valid, past)

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Turn the statistics to the positions to come, then score."""
        rotary = self.model.get_decoder().get_submodule("rotary_emb")
        refuse.rotary(rotary)
        future = self.settings.get("future", 512)
        self.rotation = self.kv.mean_rotation(
            rotary.get_buffer("inv_freq"), lengths(prompt), future
        )
        return super().finish(prompt, keep)

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        chosen = {name: self.settings[name] for name in self.settings if name != "future"}
        statistics = self.memory[told.layer]
        return self.kv.expected_attention(
            statistics, told.keys, told.values, self.rotation, valid=told.valid, **chosen
        )


class FastKVzip(Scorer):
    """A gate for each layer, on the hidden states at its attention's input.

    The setting `weights` holds a `GateWeights` for each layer.
    """

    takes = ("weights", "sinks", "recent")
    watching = True

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        super().__init__(model, kv, **settings)
        layers = model.config.num_hidden_layers
        refuse.layers("weights", settings.get("weights") or (), layers)

    def watch(self, step: Step) -> None:
        """Score the chunk: no token's score depends on another's."""
        weights = self.settings["weights"]
        one = self.kv.fastkvzip(step.hidden, weights[step.layer], sinks=0, recent=0)
        past = self.past(step)
        scores = one.scores if past is None else torch.cat([past, one.scores], -1)
        self.memory[step.layer] = scores

    def scored(self, told: Told) -> Scored:
        """Score one layer."""
        scores = self.memory[told.layer]
        if told.valid is not None:
            scores = scores.masked_fill(~told.valid[:, None], 0)
        return Scored(
            scores, ends(self.kv, told.keys, told.valid, **self.chosen("sinks", "recent"))
        )
