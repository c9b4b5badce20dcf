"""Trials and their measurements: one row for each system at each ratio."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor

from optimized.models.selection import budget_of
from optimized.models.systems import System


class Trial(NamedTuple):
    """A system at a budget; quantisers and the full cache have none."""

    system: System
    ratio: float | int | None
    """The share of the cache to remove; or, an integer, how many entries a head keeps."""

    @property
    def removed(self) -> float | None:
        """The share of the cache to remove, if it is given."""
        return None if isinstance(self.ratio, int) else self.ratio

    @property
    def keep(self) -> int | None:
        """The number of entries that a head keeps on average, if it is given."""
        return self.ratio if isinstance(self.ratio, int) else None

    def kept_of(self, tokens: int) -> int:
        """Return how many of a head's tokens are kept on average."""
        return budget_of(tokens, 1, self.removed, self.keep)


@dataclass
class Row:
    """The measurements of one trial; lists have one entry for each document."""

    trial: Trial
    bits: list[float] = field(default_factory=list)
    """Bits per byte of the continuation."""
    found: list[list[float]] = field(default_factory=list)
    """The score of each answer, from 0 to 1."""
    counted: list[list[bool]] | None = None
    """Which answers count: those to tasks that the full cache solves. None: all of them."""
    deviation: list[float] = field(default_factory=list)
    """Distance of attention outputs from the full cache's: mean over layers, heads and queries."""
    relative: list[float] = field(default_factory=list)
    """The same distance divided by the mean norm of the outputs."""
    worst: list[float] = field(default_factory=list)
    nbytes: int = 0
    kept: int = 0
    entries: int = 0
    differing: int = 0
    """Number of entries that one implementation keeps and the other does not."""
    digests: list[str] = field(default_factory=list)
    """For each batch, the hash of the masks of kept entries, or of the restored keys."""
    seconds: dict[str, float] = field(default_factory=dict)
    refused: str | None = None

    def saved(self) -> dict[str, Any]:
        """Return the measurements, in a form that JSON holds exactly."""
        return {
            name: value for name, value in vars(self).items() if name not in ("trial", "counted")
        }

    def add(self, saved: dict[str, Any]) -> None:
        """Add the measurements of more documents."""
        for name, value in saved.items():
            if name == "seconds":
                self.seconds = {
                    stage: self.seconds.get(stage, 0.0) + value.get(stage, 0.0)
                    for stage in {**self.seconds, **value}
                }
            elif name == "refused":
                self.refused = self.refused or value
            else:
                setattr(self, name, getattr(self, name) + value)


class MeasurementSettings(NamedTuple):
    """The settings of a measurement."""

    reading: str
    seed: int
    kv: ModuleType
    """The implementation that is measured."""
    other: ModuleType | None
    """Another implementation, whose kept entries are compared; or None."""
    gates: Sequence[Any] | None
    repeat: Callable[[int, Tensor], list[int]]
    """The function that returns the ids of KVzip's request for a chunk."""
    interval: int | None = None
    """Tokens of the continuation after which the cache is compressed again; None: never."""


def trials(systems: Sequence[System], ratios: Sequence[float | int]) -> list[Trial]:
    """Return every system at every ratio or budget; a system without one occurs once."""
    some = tuple(dict.fromkeys(ratios))
    return [
        Trial(system, ratio) for system in systems for ratio in (some if system.evicts else (None,))
    ]
