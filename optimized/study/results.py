"""What is measured: a row of the table for each system at each ratio."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

from torch import Tensor

from optimized.models.systems import System


class Trial(NamedTuple):
    """A system at a ratio; quantisers, and the full cache, have none."""

    system: System
    ratio: float | None


@dataclass
class Row:
    """What was measured of one trial, a number for each document."""

    trial: Trial
    bits: list[float] = field(default_factory=list)
    """Of the continuation, a byte."""
    found: list[list[bool]] = field(default_factory=list)
    """Which facts."""
    deviation: list[float] = field(default_factory=list)
    """Of attention, mean over layers, heads and queries."""
    relative: list[float] = field(default_factory=list)
    """The same in units of attention itself."""
    worst: list[float] = field(default_factory=list)
    nbytes: int = 0
    kept: int = 0
    entries: int = 0
    differing: int = 0
    """Entries that one implementation keeps and the other does not."""
    digest: Any = field(default_factory=hashlib.sha256)
    """Of all that is kept."""
    seconds: dict[str, float] = field(default_factory=dict)
    refused: str | None = None


class Settings(NamedTuple):
    """What a measurement needs beside the model."""

    reading: str
    seed: int
    kv: ModuleType
    """The implementation."""
    other: ModuleType | None
    """The implementation whose kept entries are compared, where one is."""
    gates: Sequence[Any] | None
    repeat: Callable[[int, Tensor], list[int]]
    """The request of KVzip for a chunk."""


def trials(systems: Sequence[System], ratios: Sequence[float]) -> list[Trial]:
    """Return every row to be measured, once."""
    some = tuple(dict.fromkeys(ratios))
    return [
        Trial(system, ratio) for system in systems for ratio in (some if system.evicts else (None,))
    ]
