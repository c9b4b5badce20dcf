"""The configurations of the shipped models: their shapes and training stages."""

from typing import Any, NamedTuple

from optimized.tiny.tasks import COPYING, FINDING, MIXED, STARTING, Shares

WARMUP = 50
MUON = 0.02


class Stage(NamedTuple):
    """Training steps at one length, each of `rows` rows, with a mixture of tasks."""

    length: int
    rows: int
    steps: int
    shares: Shares


class Plan(NamedTuple):
    """The training plan of a model."""

    shape: dict[str, Any]
    """The settings of the model that differ between the two."""
    stages: tuple[Stage, ...]
    adam: float
    """The learning rate of AdamW, for all weights except matrices of layers; those use `MUON`."""
    cycles: dict[int, int]
    """The step at which each learning rate cycle ends, and how many last steps decay to zero."""

    @property
    def steps(self) -> int:
        """The number of steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage_of(self, step: int) -> Stage:
        """Return the stage that a step belongs to."""
        for stage in self.stages:
            if step < stage.steps:
                return stage
            step -= stage.steps
        return self.stages[-1]

    def rate(self, step: int) -> float:
        """Return the factor of the learning rates: warmup, constant and decay in every cycle."""
        start = max((end for end in self.cycles if end <= step), default=0)
        end = min(end for end in self.cycles if end > step)
        return min(1.0, (step + 1 - start) / WARMUP, (end - step) / self.cycles[end])


PLANS = {
    "bytes": Plan(
        dict(vocab_size=258, intermediate_size=256, tie_word_embeddings=False),
        (
            Stage(192, 8, 2500, COPYING),
            Stage(256, 8, 400, MIXED),
            Stage(512, 6, 400, MIXED),
            Stage(1024, 4, 400, MIXED),
            Stage(512, 8, 800, FINDING),
            Stage(1280, 3, 1400, FINDING),
        ),
        0.004,
        {3700: 200, 5900: 500},
    ),
    "words": Plan(
        dict(vocab_size=2048, intermediate_size=512, tie_word_embeddings=True),
        (
            Stage(96, 64, 400, STARTING),
            Stage(192, 32, 400, COPYING),
            Stage(320, 18, 400, MIXED),
            Stage(640, 9, 600, FINDING),
            Stage(1280, 5, 900, FINDING),
        ),
        0.003,
        {2700: 550},
    ),
}
