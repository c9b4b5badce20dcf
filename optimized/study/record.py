"""The figures of a run, in the form of the JSON file."""

import platform
from collections.abc import Sequence
from importlib import metadata
from math import isfinite
from typing import Any

from optimized.study.compared_systems import corrections_in_use
from optimized.study.documents import Document, have_overlap
from optimized.study.measurements import Row
from optimized.study.significance import differences, fewest, interval, needle_shares, verdicts

SCHEMA = 5
LEAST = 0.1
"""Smallest share of needles found by the full cache for which needles are compared."""
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


def needles_unusable_reason(full: Row) -> str | None:
    """Return why needles are not compared, or None if they are."""
    found = mean(needle_shares(full))
    if found is None:
        return "No needles were hidden."
    if found < LEAST:
        return (
            f"With the full cache the model answers {found:.1%} of the questions, less than a "
            "tenth: they are written as in Python, cannot compare systems here, and are left out."
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
    return named | {
        "kept_percent": 100 * row.kept / row.entries,
        "stored_percent": 100 * row.nbytes / full.nbytes,
        "stored_bytes": row.nbytes,
        "bits_per_byte": mean(row.bits),
        "bits_change": mean(change),
        "bits_change_interval": interval(change, seed)[1:],
        "needle_accuracy": mean(needle_shares(row)),
        "needle_change": mean(lost),
        "needle_change_interval": interval(lost, seed)[1:] if lost else None,
        "deviation_mean": mean(row.deviation),
        "deviation_relative": mean(row.relative),
        "deviation_worst": max(row.worst),
        "seconds": {stage: row.seconds.get(stage, 0.0) for stage in STAGES},
        "entries_differing": row.differing if compared and system.evicts else None,
        "digest": row.digest.hexdigest(),
        "bits_by_document": row.bits,
        "found_by_document": row.found,
    }


def record(
    rows: Sequence[Row],
    documents: Sequence[Document],
    command: dict[str, Any],
    model: dict[str, Any],
    pictures: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Return the full record of a run."""
    full = rows[0]
    reading, seed = command["readings"], command["seed"]
    compared = command["implementation"] == "reference"
    without = needles_unusable_reason(full)
    judged = verdicts(rows, lambda row: 100 * row.nbytes / full.nbytes, seed, without is None)
    tests = sum(len(one.p) for one in judged)
    return {
        "schema": SCHEMA,
        "command": command,
        "versions": versions(),
        "model": model,
        "documents": {
            "lengths": [len(document.context) for document in documents],
            "continuation": len(documents[0].continuation),
            "depths": [[one.depth for one in document.questions] for document in documents],
            "overlapping": have_overlap(list(documents)),
        },
        "no_needles": without,
        "rows": [figures(row, full, reading, compared, seed) for row in rows],
        "tests": {"count": tests, "documents": fewest(tests)} if tests else None,
        "verdicts": [{**one._asdict(), "words": one.words} for one in judged],
        "pictures": list(pictures),
    }
