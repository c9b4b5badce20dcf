"""The progress of a run on standard error: a bar on a terminal, a line now and then elsewhere."""

import sys
from collections.abc import Sequence
from time import monotonic

from tqdm import tqdm

EVERY = 30.0
"""Seconds between two lines where standard error is no terminal."""
BAR = "{desc} {percentage:3.0f}% |{bar}| {elapsed} so far, about {remaining} left"


class Progress:
    """The progress of steps of known weights; use it as a context manager.

    Args:
        weights: the expected cost of each step, in any unit.
        quiet: show nothing.
    """

    def __init__(self, weights: Sequence[float], quiet: bool = False) -> None:
        self.left = list(reversed(weights))
        self.total, self.done = sum(weights), 0.0
        self.start = self.told = monotonic()
        terminal = sys.stderr.isatty()
        self.lines = not quiet and not terminal
        self.bar = tqdm(
            total=self.total,
            disable=quiet or not terminal,
            bar_format=BAR,
            smoothing=0,  # steps differ much, so that the mean of all predicts best
            dynamic_ncols=True,
        )

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def step(self, name: str) -> None:
        """Count a step that is done, and show its name."""
        weight = self.left.pop()
        self.done += weight
        self.bar.set_description_str(f"{name:<20}", refresh=False)
        self.bar.update(weight)
        now = monotonic()
        if self.lines and now - self.told >= EVERY and self.left:
            self.told = now
            spent = now - self.start
            rest = spent * (self.total - self.done) / self.done
            print(
                f"{self.done / self.total:4.0%} done, {tqdm.format_interval(spent)} so far, about "
                f"{tqdm.format_interval(rest)} left; last {name}",
                file=sys.stderr,
                flush=True,
            )
