"""How sure a difference is, over documents, each with all its needles.

Intervals are of one comparison by itself. Verdicts are for all of a run together: of the exact
sign-flip test (Fisher's randomisation test of paired differences), with Holm's correction.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log2
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap

from optimized.models.scorers.random import Random
from optimized.models.systems import System
from optimized.study.results import Row

RESAMPLES, LEVEL, ALPHA = 2000, 0.95, 0.05
FLIPS = 1 << 17
"""Sign patterns of a test: all that 18 documents have, up to the sign of all together."""


class Interval(NamedTuple):
    """A mean and the bounds that hold it in 95 % of the resamples, where documents suffice."""

    mean: float
    low: float | None
    high: float | None


class Verdict(NamedTuple):
    """One trial against another on the same documents."""

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
    p: tuple[float, ...]
    """Of the test of bits and that of needles, corrected for all tests of the run."""
    signs: str
    """What the same tests say: + better, - worse, = no difference seen, ? too few documents."""

    @property
    def words(self) -> str:
        """What the tests say."""
        what = zip(("text", "needles"), self.signs, strict=False)
        return ", ".join(f"{name} {WORDS[sign]}" for name, sign in what)


WORDS = {
    "+": "better",
    "-": "worse",
    "=": "no difference seen",
    "?": "no verdict, too few documents",
}


def fewest(tests: int) -> int:
    """Return how many documents there must be before one of so many tests can find a difference.

    All of them may agree by chance, in one case out of 2^(documents - 1).
    """
    return 1 + ceil(log2(tests / ALPHA))


def sign_flips(documents: int, seed: int) -> np.ndarray:
    """Return the signs that differences could have had: all of them, or many at random."""
    if 1 << (documents - 1) <= FLIPS:
        codes = np.arange(1 << (documents - 1))[:, None]
        return 1.0 - 2 * (codes >> np.arange(documents) & 1)
    drawn = np.random.default_rng(seed).choice((-1.0, 1.0), (FLIPS, documents))
    drawn[0] = 1  # what was seen is one of them
    return drawn


def chances(samples: Sequence[Sequence[float]], seed: int) -> list[float]:
    """Return, for each row of differences, the chance of a sum as far from 0 if signs are chance.

    Args:
        samples: a row for each test, a number for each document.
        seed: of the signs, where these are too many to try all.
    """
    found = []
    signs = sign_flips(len(samples[0]), seed) if samples else np.empty(0)
    for sample in np.asarray(samples, dtype=np.float64):
        as_far = abs(signs @ sample) >= abs(sample.sum()) - 1e-12 * abs(sample).sum()
        found.append(float(as_far.mean()))
    return found


def holm(chances: Sequence[float]) -> list[float]:
    """Return p-values that hold for all tests together, by Holm's method."""
    p = np.asarray(chances)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    return corrected.tolist()


def interval(differences: Sequence[float], seed: int) -> Interval:
    """Return the mean of some numbers, one for each document, and its bounds."""
    sample = np.asarray(differences, dtype=np.float64)
    mean = float(sample.mean())
    if len(sample) < fewest(1):
        return Interval(mean, None, None)
    if (sample == sample[0]).all():
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


def verdicts(
    rows: Sequence[Row], stored: Callable[[Row], float], seed: int, needles: bool = True
) -> list[Verdict]:
    """Compare what the papers compare, and each scorer with chance, as far as it was measured.

    Args:
        rows: the full cache, and what was measured.
        stored: returns the bytes of a row in percent.
        seed: of resamples, and of signs.
        needles: whether needles are compared, and count among the tests.
    """
    compared = list(pairs(rows))
    samples = [
        [
            differences(row.bits, other.bits),
            differences(shares(row), shares(other)) if needles else [],
        ]
        for _, row, other in compared
    ]
    asked = [sample for both in samples for sample in both if sample]
    corrected = iter(holm(chances(asked, seed)))
    found = []
    for (claim, row, other), (bits, facts) in zip(compared, samples, strict=True):
        p = tuple(next(corrected) for sample in (bits, facts) if sample)
        few = len(bits) < fewest(len(asked))
        gains = -sum(bits), sum(facts)
        found.append(
            Verdict(
                claim,
                row.trial.system.name,
                other.trial.system.name,
                row.trial.ratio,
                interval(bits, seed),
                interval(facts, seed) if facts else None,
                (stored(row), stored(other)),
                p,
                "".join("?" if few else sign(*test) for test in zip(gains, p, strict=False)),
            )
        )
    return found


def pairs(rows: Sequence[Row]) -> Iterator[tuple[str, Row, Row]]:
    """Return each claim with a row that it is about, and the row that it is measured against."""
    measured = {row.trial: row for row in rows if row.refused is None}
    by_name = {(trial.system.name, trial.ratio): row for trial, row in measured.items()}
    for claim, base_of in CLAIMS.items():
        for trial, row in measured.items():
            base = base_of(trial.system) or ""
            against = by_name.get((base, trial.ratio)) or by_name.get((base, None))
            if against is not None:
                yield claim, row, against


def sign(gain: float, p: float) -> str:
    """Return what a test says of a difference that is better above 0."""
    return "=" if p > ALPHA else "+" if gain > 0 else "-"


def differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return what differs, document by document."""
    return [a - b for a, b in zip(one, other, strict=True)]


def unrefined(system: System, refinement: str) -> str | None:
    """Return the same system without its refinement."""
    if system.refinement != refinement or system.store is not None:
        return None
    return system.name.replace(f"+{refinement}", "")


def chance(system: System) -> str | None:
    """Return the random choice that a scorer by itself must beat."""
    alone = system.evicts and system.refinement is None and system.scorer != Random.name
    return Random.name if alone else None


def whole(system: System) -> str | None:
    """Return the full cache, which a quantiser is to equal."""
    return "full" if system.store is not None else None


CLAIMS: dict[str, Callable[[System], str | None]] = {
    "HubKV against its base": lambda system: unrefined(system, "hubkv"),
    "GraphKV against its base": lambda system: unrefined(system, "graphkv"),
    "Quantised against the full cache": whole,
    "Scorers against chance": chance,
}
