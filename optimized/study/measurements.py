"""Trials and their measurements: one row for each system at each ratio."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor

from optimized.models.systems import System


class Trial(NamedTuple):
    """A system at a ratio; quantisers and the full cache have no ratio."""

    system: System
    ratio: float | None


@dataclass
class Row:
    """The measurements of one trial; lists have one entry for each document."""

    trial: Trial
    bits: list[float] = field(default_factory=list)
    """Bits per byte of the continuation."""
    found: list[list[bool]] = field(default_factory=list)
    """Which facts were found."""
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
    digest: Any = field(default_factory=hashlib.sha256)
    """Hash of the masks of kept entries, or of the restored keys."""
    seconds: dict[str, float] = field(default_factory=dict)
    refused: str | None = None


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


def trials(systems: Sequence[System], ratios: Sequence[float]) -> list[Trial]:
    """Return every system at every ratio; a system without a ratio occurs once."""
    some = tuple(dict.fromkeys(ratios))
    return [
        Trial(system, ratio) for system in systems for ratio in (some if system.evicts else (None,))
    ]
