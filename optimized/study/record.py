"""The figures of a run, in the form of the JSON file."""

import platform
from collections.abc import Sequence
from hashlib import sha256
from importlib import metadata
from math import isfinite
from typing import Any

from optimized.study.compared_systems import corrections_in_use
from optimized.study.documents import Document, have_overlap
from optimized.study.measurements import Row
from optimized.study.significance import differences, fewest, interval, needle_shares, verdicts

SCHEMA = 6
LEAST = 0.8
"""Smallest share of tasks of a kind that the full cache must solve, if the kind is to count."""
OWN_LEAST = 0.1
"""The same for the mean score of somebody's own questions."""
STAGES = ("scoring", "selecting")
PACKAGES = ("kvspec", "torch", "numpy", "scipy", "transformers", "safetensors", "tokenizers")


def versions() -> dict[str, str]:
    """Return the versions of Python, the platform and the packages."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, or None for no values."""
    return sum(values) / len(values) if values else None


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: the value itself, or its string."""
    finite = isinstance(value, float) and isfinite(value)
    return value if finite or isinstance(value, int | str | None) else str(value)


def solved_kinds(scores: dict[str, float], least: float) -> dict[str, float]:
    """Return the kinds of tasks that the full cache solves well enough, with its mean scores."""
    return {kind: score for kind, score in scores.items() if score >= least}


def shares(row: Row, kinds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return the mean score of a row on each kind of task."""
    scores: dict[str, list[float]] = {}
    for named, found in zip(kinds, row.found, strict=True):
        for kind, score in zip(named, found, strict=True):
            scores.setdefault(kind, []).append(score)
    return {kind: sum(marks) / len(marks) for kind, marks in scores.items()}


def needles_unusable_reason(all_kinds: dict[str, float], least: float) -> str | None:
    """Return why answers are not compared, or None if they are."""
    if not all_kinds:
        return "No needles were hidden."
    if max(all_kinds.values()) < least:
        listed = ", ".join(f"{kind} {share:.1%}" for kind, share in all_kinds.items())
        return (
            f"With the full cache the model answers too few questions ({listed}; it takes "
            f"{least:.0%}): they cannot compare systems here, and are left out."
        )
    return None


def figures(row: Row, full: Row, reading: str, compared: bool, seed: int) -> dict[str, Any]:
    """Return the figures of one row of the table."""
    system = row.trial.system
    named: dict[str, Any] = {
        "system": system.name,
        "scorer": system.scorer,
        "refinement": system.refinement,
        "scope": system.scope if system.evicts else None,
        "store": system.store,
        "ratio": row.trial.ratio,
        "readings": corrections_in_use(system, reading),
        "settings": {f"{part}.{name}": plain(value) for part, name, value in system.changes},
        "refused": row.refused,
    }
    if row.refused is not None:
        return named
    change = differences(row.bits, full.bits)
    lost = differences(needle_shares(row), needle_shares(full))
    share = mean(needle_shares(row))
    return named | {
        "kept_percent": 100 * row.kept / row.entries if row.entries else None,
        "stored_percent": 100 * row.nbytes / full.nbytes,
        "stored_bytes": row.nbytes,
        "bits_per_byte": mean(row.bits),
        "bits_change": mean(change),
        "bits_change_interval": interval(change, seed)[1:] if change else None,
        "needle_accuracy": share,
        "needle_change": mean(lost),
        "needle_change_interval": interval(lost, seed)[1:] if lost else None,
        "deviation_mean": mean(row.deviation),
        "deviation_relative": mean(row.relative),
        "deviation_worst": max(row.worst, default=None),
        "seconds": {stage: row.seconds.get(stage, 0.0) for stage in STAGES},
        "entries_differing": row.differing if compared and system.evicts else None,
        "digest": sha256("".join(row.digests).encode()).hexdigest(),
        "bits_by_document": row.bits,
        "found_by_document": row.found,
    }


def about_documents(documents: Sequence[Document], text: str) -> dict[str, Any]:
    """Return what the record says of the documents."""
    return {
        "lengths": [len(document.context) for document in documents],
        "continuation": len(documents[0].continuation),
        "depths": [[question.depth for question in document.questions] for document in documents],
        "kinds": [[question.kind for question in document.questions] for document in documents],
        "own": any(question.answers for document in documents for question in document.questions),
        "overlapping": text != "noise" and have_overlap(list(documents)),
    }


def record(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, Any]:
    """Return the full record of a run.

    Args:
        rows: the rows, that of the full cache first.
        about: the command, the model, the documents and the versions.
    """
    full, command, documents = rows[0], about["command"], about["documents"]
    reading, seed = command["readings"], command["seed"]
    least = OWN_LEAST if documents["own"] else LEAST
    all_kinds = shares(full, documents["kinds"])
    solved = solved_kinds(all_kinds, least)
    without = needles_unusable_reason(all_kinds, least)
    if without is None:
        for row in rows:
            row.counted = [[kind in solved for kind in kinds] for kinds in documents["kinds"]]
    judged = verdicts(rows, lambda row: 100 * row.nbytes / full.nbytes, seed, without is None)
    tests = sum(len(verdict.p) for verdict in judged)
    compared = command["implementation"] == "reference"
    return {
        "schema": SCHEMA,
        **{name: about[name] for name in ("command", "versions", "model", "documents")},
        "no_needles": without,
        "kinds": {
            kind: {"full": share, "counts": kind in solved} for kind, share in all_kinds.items()
        },
        "rows": [figures(row, full, reading, compared, seed) for row in rows],
        "tests": {"count": tests, "documents": fewest(tests)} if tests else None,
        "verdicts": [{**verdict._asdict(), "words": verdict.words} for verdict in judged],
        "pictures": [],
    }
