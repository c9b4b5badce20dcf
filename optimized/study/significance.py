"""Significance of differences; the sample is the documents, each with all its needles.

An interval holds for one comparison by itself. Verdicts hold for all comparisons of a run together:
they come from the exact sign-flip test (Fisher's randomisation test of paired differences), with
Holm's correction.
"""

from collections.abc import Callable, Iterator, Sequence
from math import ceil, log2
from typing import NamedTuple

import numpy as np
from scipy.stats import bootstrap

from optimized.models.scorers.random import Random
from optimized.models.systems import System
from optimized.study.measurements import Row

RESAMPLES, LEVEL, ALPHA = 2000, 0.95, 0.05
EXACT = 40
"""The most documents of which all patterns of signs are tried."""
FLIPS = 1 << 17
"""Number of random patterns of more documents."""


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap bounds; the bounds are None for too few documents."""

    mean: float
    low: float | None
    high: float | None


class Verdict(NamedTuple):
    """The comparison of two trials on the same documents."""

    claim: str
    system: str
    against: str
    ratio: float | None
    bits: Interval | None
    """Difference in bits per byte: below 0 is better."""
    needles: Interval | None
    """Difference in the share of needles found: above 0 is better."""
    stored: tuple[float, float]
    """Stored bytes of both trials, in percent of the full cache."""
    p: tuple[float, ...]
    """p-values of the tests of bits and of needles, corrected for all tests of the run."""
    signs: str
    """Results of the same tests: + better, - worse, = not significant, ? too few documents.

    A space stands for a test that was not made.
    """

    @property
    def words(self) -> str:
        """The results of the tests in words."""
        what = zip(("text", "needles"), self.signs, strict=False)
        return ", ".join(f"{name} {WORDS[sign]}" for name, sign in what if sign != " ")


WORDS = {
    "+": "better",
    "-": "worse",
    "=": "not significant",
    "?": "no verdict, too few documents",
}


def fewest(tests: int) -> int:
    """Return the fewest documents with which one of `tests` tests can find a difference.

    By chance, all documents differ in the same direction in one case out of 2^(documents - 1).
    """
    return 1 + ceil(log2(tests / ALPHA))


def chances(samples: Sequence[Sequence[float]], seed: int) -> list[float]:
    """Return the p-value of each row of differences: how often random signs give as large a sum.

    Args:
        samples: a row for each test, a number for each document.
        seed: seed of the random signs, where there are too many patterns to try all.
    """
    return [chance_of(np.asarray(sample, dtype=np.float64), seed) for sample in samples]


def chance_of(sample: np.ndarray, seed: int) -> float:
    """Return the share of the patterns of signs that give at least as large a sum."""
    least = abs(sample.sum()) - 1e-12 * abs(sample).sum()
    if len(sample) > EXACT:
        signs = np.random.default_rng(seed).choice((-1.0, 1.0), (FLIPS, len(sample)))
        signs[0] = 1  # the observed pattern is one of them
        return float((abs(signs @ sample) >= least).mean())
    left, right = map(signed_sums, np.array_split(sample, 2))
    right.sort()
    above = len(right) - np.searchsorted(right, least - left, side="left")
    below = np.searchsorted(right, -least - left, side="right")
    return min(1.0, float((above + below).sum() / (len(left) * len(right))))


def signed_sums(sample: np.ndarray) -> np.ndarray:
    """Return the sum for every pattern of signs."""
    sums = np.zeros(1)
    for number in sample:
        sums = np.concatenate([sums + number, sums - number])
    return sums


def holm(chances: Sequence[float]) -> list[float]:
    """Return p-values that hold for all tests together, by Holm's method."""
    p = np.asarray(chances)
    order = np.argsort(p, kind="stable")
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1)
    return corrected.tolist()


def interval(differences: Sequence[float], seed: int) -> Interval:
    """Return the mean of differences, one for each document, and its bootstrap bounds."""
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


def needle_shares(row: Row) -> list[float]:
    """Return the mean score of the answers that count in each document that has any."""
    shares = []
    for index, found in enumerate(row.found):
        flags = [True] * len(found) if row.counted is None else row.counted[index]
        scores = [score for score, counts in zip(found, flags, strict=True) if counts]
        shares += [sum(scores) / len(scores)] if scores else []
    return shares


def verdicts(
    rows: Sequence[Row], stored: Callable[[Row], float], seed: int, needles: bool = True
) -> list[Verdict]:
    """Return the verdicts on the papers' comparisons, and on each scorer against random scores.

    Comparisons with a row that was not measured are left out.

    Args:
        rows: the row of the full cache, and the measured rows.
        stored: returns the bytes of a row in percent.
        seed: seed of resamples and signs.
        needles: whether needles are compared, and count among the tests.
    """
    compared = list(pairs(rows))
    samples = [
        [
            differences(row.bits, other.bits),
            differences(needle_shares(row), needle_shares(other)) if needles else [],
        ]
        for _, row, other in compared
    ]
    asked = [sample for both in samples for sample in both if sample]
    corrected = iter(holm(chances(asked, seed)))
    found = []
    for (claim, row, other), (bits, facts) in zip(compared, samples, strict=True):
        p = tuple(next(corrected) for sample in (bits, facts) if sample)
        few = max(len(bits), len(facts)) < fewest(len(asked))
        tests, left = ((-sum(bits), bits), (sum(facts), facts)), iter(p)
        signs = [
            " " if not sample else "?" if few else sign(gain, next(left)) for gain, sample in tests
        ]
        found.append(
            Verdict(
                claim,
                row.trial.system.name,
                other.trial.system.name,
                row.trial.ratio,
                interval(bits, seed) if bits else None,
                interval(facts, seed) if facts else None,
                (stored(row), stored(other)),
                p,
                "".join(signs).rstrip(),
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
    """Return the result of a test as a sign; differences above 0 are better."""
    return "=" if p > ALPHA else "+" if gain > 0 else "-"


def differences(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return the differences, document by document."""
    return [a - b for a, b in zip(one, other, strict=True)]


def unrefined(system: System, refinement: str) -> str | None:
    """Return a system's name without this refinement; None if it lacks it or has a store."""
    if system.refinement != refinement or system.store is not None:
        return None
    return system.name.partition(":")[0].replace(f"+{refinement}", "")


def unchanged(system: System) -> str | None:
    """Return the name of a system without the settings behind it; None if it has none."""
    name, colon, _ = system.name.partition(":")
    return name if colon else None


def chance(system: System) -> str | None:
    """Return the random scorer's name, for a scorer without refinement; otherwise None."""
    alone = system.evicts and system.refinement is None and system.scorer != Random.name
    return Random.name if alone else None


CODES_ALONE = {"hex-3": "kcvt-3", "hex-4": "kcvt-4"}
KIVI_OF = {"hex-3": "kivi-2", "hex-4": "kivi-4"}
"""The KIVI that the paper compares each HEX with."""

CLAIMS: dict[str, Callable[[System], str | None]] = {
    "HubKV against its base": lambda system: unrefined(system, "hubkv"),
    "GraphKV against its base": lambda system: unrefined(system, "graphkv"),
    "Quantised against the full cache": lambda system: "full" if system.store else None,
    "HEX against codes alone": lambda system: CODES_ALONE.get(system.name),
    "HEX against KIVI": lambda system: KIVI_OF.get(system.name),
    "Changed settings against the usual ones": unchanged,
    "Scorers against chance": chance,
}
