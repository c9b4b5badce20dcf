"""A clock that sums up seconds by stage."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

import torch


class Clock:
    """Sums of seconds by the name of a stage."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds: dict[str, float] = {}

    def now(self) -> float:
        """Return the time after all queued work of the device is done."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return perf_counter()

    @contextmanager
    def at(self, stage: str) -> Iterator[None]:
        """Add the time within the context to a stage."""
        start = self.now()
        yield
        self.seconds[stage] = self.seconds.get(stage, 0.0) + self.now() - start
