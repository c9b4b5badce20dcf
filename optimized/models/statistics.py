"""How sure a difference is: bootstrap intervals over documents, each with all its needles."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap

from optimized.models.rows import Row
from optimized.models.systems import System

RESAMPLES, LEVEL = 2000, 0.95


class Interval(NamedTuple):
    """A mean and the bounds that hold it in 95 % of the resamples."""

    mean: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """-1 or 1 where both bounds are on that side of 0, else 0."""
        return int(self.low > 0) - int(self.high < 0)


class Verdict(NamedTuple):
    """One way against another on the same documents."""

    claim: str
    system: str
    against: str
    ratio: float | None
    bits: Interval
    """Difference in bits per byte: below 0 is better."""
    needles: Interval | None
    """Difference in the share of needles found: above 0 is better."""
    stored: tuple[float, float]
    """Stored bytes of both, in percent of the full cache."""

    @property
    def words(self) -> str:
        """What the intervals say."""
        named = {-1: "worse", 0: "no difference seen", 1: "better"}
        bits = f"text {named[-self.bits.sign]}"
        return bits if self.needles is None else f"{bits}, needles {named[self.needles.sign]}"


def interval(differences: Sequence[float], seed: int) -> Interval:
    """Return the mean of some numbers, one for each document, and its bounds."""
    sample = np.asarray(differences, dtype=np.float64)
    mean = float(sample.mean())
    if len(sample) < 2 or bool((sample == sample[0]).all()):
        return Interval(mean, mean, mean)
    bounds = bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean, float(bounds.low), float(bounds.high))


def shares(row: Row) -> list[float]:
    """Return the share of needles found in each document."""
    return [sum(found) / len(found) for found in row.found if found]


def compare(claim: str, one: Row, other: Row, stored: Callable[[Row], float], seed: int) -> Verdict:
    """Compare two rows document by document."""
    bits = [a - b for a, b in zip(one.bits, other.bits, strict=True)]
    needles = [a - b for a, b in zip(shares(one), shares(other), strict=True)]
    return Verdict(
        claim,
        one.way.system.name,
        other.way.system.name,
        one.way.ratio,
        interval(bits, seed),
        interval(needles, seed) if needles else None,
        (stored(one), stored(other)),
    )


def verdicts(rows: Sequence[Row], stored: Callable[[Row], float], seed: int) -> list[Verdict]:
    """Compare what the papers compare, and each scorer with chance, as far as it was measured."""
    measured = {row.way: row for row in rows if row.refused is None}
    by_name = {(way.system.name, way.ratio): row for way, row in measured.items()}
    found = []
    for claim, base_of in CLAIMS.items():
        for way, row in measured.items():
            base = base_of(way.system) or ""
            against = by_name.get((base, way.ratio)) or by_name.get((base, None))
            if against is not None:
                found.append(compare(claim, row, against, stored, seed))
    return found


def unrefined(system: System, refinement: str) -> str | None:
    """Return the same system without its refinement."""
    if system.refinement != refinement or system.store is not None:
        return None
    return system.name.replace(f"+{refinement}", "")


def chance(system: System) -> str | None:
    """Return the random choice that a scorer by itself must beat."""
    alone = system.evicts and system.refinement is None and system.scorer != "random"
    return "random" if alone else None


def whole(system: System) -> str | None:
    """Return the full cache, which a quantiser is to equal."""
    return "full" if system.store is not None else None


CLAIMS: dict[str, Callable[[System], str | None]] = {
    "HubKV against its base": lambda system: unrefined(system, "hubkv"),
    "GraphKV against its base": lambda system: unrefined(system, "graphkv"),
    "Quantised against the full cache": whole,
    "Scorers against chance": chance,
}
