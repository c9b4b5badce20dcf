"""Run all scorers of a run on the same prompt."""

from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from optimized.models.prefill import Prefilled, Step
from optimized.models.scorer import Scorer, Scores
from optimized.models.scorers import SCORERS, scorer
from optimized.models.scorers.h2o import H2O
from optimized.models.systems import reading_settings
from optimized.study.measurements import MeasurementSettings, Trial
from optimized.study.stage_clock import Clock


class PromptScorers:
    """The scorers of some trials, for one prompt.

    Where a scorer does not support the model, only its own trials are refused.

    Args:
        model: the attached model.
        tokens: length of the prompt.
        rows: the trials.
        settings: one or both implementations, the seed, the reading and the gates.
        place: index of the prompt's first document among all; it makes random scores differ
            between batches.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokens: int,
        rows: Sequence[Trial],
        settings: MeasurementSettings,
        place: int = 0,
    ) -> None:
        self.model, self.tokens, self.settings, self.place = model, tokens, settings, place
        self.clock = Clock(model.device)
        self.finished: dict[str, Scores] = {}
        names = {trial.system.scorer for trial in rows} - {None}
        self.changed: dict[str, dict[str, Any]] = {name: {} for name in map(str, names)}
        for name, trial in product(self.changed, rows):
            self.changed[name] |= trial.system.changes_of(name)
        self.scorers: dict[tuple[str, str], Scorer] = {}
        self.refused: dict[str, ValueError] = {}
        both = [kv for kv in (settings.kv, settings.other) if kv is not None]
        for kv, name in product(both, sorted(map(str, names))):
            try:
                self.scorers[kv.__name__, name] = scorer(name, model, kv, **self.chosen(name))
            except ValueError as refusal:  # other scorers may still support the model
                self.refused[name] = refusal

    def chosen(self, name: str) -> dict[str, Any]:
        """Return the settings of a scorer in this run."""
        seed = Random(f"scores {self.settings.seed} {self.place}").getrandbits(32)
        known = {"seed": seed, "weights": self.settings.gates, **self.repeating()}
        chosen = {setting: known[setting] for setting in SCORERS[name].takes if setting in known}
        return chosen | reading_settings(name, self.settings.reading) | self.changed[name]

    def repeating(self) -> dict[str, Any]:
        """Return KVzip's settings: as few equal chunks as the model's positions allow."""
        limit = getattr(self.model.config, "max_position_embeddings", None) or 2**31
        longest = len(self.settings.repeat(1, torch.zeros(8, dtype=torch.long))) + 8
        repeated = max(1, self.tokens - 4)
        room = max(1, min(2000, limit - self.tokens - longest))
        chunks = -(-repeated // room)
        return {"chunk": -(-repeated // chunks), "prompt": self.settings.repeat}

    def watchers(self) -> list[Callable[[Step], None]]:
        """Return a watcher of the prompt for each scorer; each one is timed by itself."""
        return [self.timed(*key) for key in self.scorers]

    def timed(self, implementation: str, name: str) -> Callable[[Step], None]:
        """Return a watcher that adds its time to the scorer's stage."""
        watching = self.scorers[implementation, name]

        def watch(step: Step) -> None:
            with self.clock.at(f"{implementation} {name}"):
                watching.watch(step)

        return watch

    def scores(self, prompt: Prefilled, trial: Trial, kv: ModuleType) -> tuple[Scores, float]:
        """Return the scores of a trial, and the seconds of watching and scoring.

        Scores are computed once for each budget that they depend on.
        """
        name = str(trial.system.scorer)
        if name in self.refused:
            raise self.refused[name]
        keep = trial.kept_of(self.tokens)
        one = self.scorers[kv.__name__, name]
        if one.observing is not None and "window" not in self.changed[name]:
            one.settings["window"] = one.window_for(keep)
        asks = one.budgeted or one.observing is not None
        watched = f"{kv.__name__} {name}"
        finished = f"{watched} of {keep if asks else 'any'}"
        if finished not in self.finished:
            with self.clock.at(finished):
                self.finished[finished] = one.finish(prompt, keep)
        seconds = self.clock.seconds.get(watched, 0.0) + self.clock.seconds[finished]
        return self.finished[finished], seconds

    def mass(self, kv: ModuleType) -> tuple[list[Tensor], float]:
        """Return the attention mass of each layer, and the seconds it took."""
        memory = self.scorers[kv.__name__, H2O.name].memory
        seconds = self.clock.seconds.get(f"{kv.__name__} {H2O.name}", 0.0)
        return [memory[layer] for layer in sorted(memory)], seconds
