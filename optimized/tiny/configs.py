"""What differs between the shipped models: their shape, and what they practise when."""

from typing import Any, NamedTuple

from optimized.tiny.tasks import COPYING, FINDING, MIXED, STARTING, Shares

WARMUP = 50
MUON = 0.02


class Stage(NamedTuple):
    """Some steps at one length, `rows` rows each, of a mixture of kinds."""

    length: int
    rows: int
    steps: int
    shares: Shares


class Plan(NamedTuple):
    """How a model is made."""

    shape: dict[str, Any]
    """What is not the same in both shapes."""
    stages: tuple[Stage, ...]
    adam: float
    """The rate of what is no matrix inside; that of the matrices is the same."""
    cycles: dict[int, int]
    """Where a cycle of the rates ends, and over how many of its last steps they fall to nothing."""

    @property
    def steps(self) -> int:
        """All steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage_of(self, step: int) -> Stage:
        """Return the stage that a step belongs to."""
        for stage in self.stages:
            if step < stage.steps:
                return stage
            step -= stage.steps
        return self.stages[-1]

    def rate(self, step: int) -> float:
        """Return the share of the full rates: up, level and down, in every cycle."""
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
