"""Tables of the docs from runs of `python -m optimized` on the shipped model, one a reading.

The runs are docs/shipped/remedied.json and letter.json, as the command wrote them.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from optimized.readings import READINGS

RUNS = Path(__file__).parent / "shipped"
Figures = dict[str, Any]


def tables() -> dict[str, str]:
    """Return the tables by the names of the files that the docs include."""
    runs = {
        reading: json.loads((RUNS / f"{reading}.json").read_text())
        for reading in reversed(READINGS)
    }
    claims = (
        "HubKV against its base",
        "GraphKV against its base",
        "Quantised against the full cache",
    )
    first = runs["remedied"]
    return {
        "shipped_run": about(first),
        "shipped_evicted": markdown(evicted(first)),
        "shipped_stored": markdown(stored(first)),
        "shipped_chance": markdown(against_chance(first)),
        "shipped_facts": markdown(facts(json.loads((RUNS / "facts.json").read_text()))),
    } | {f"shipped_{claim.split()[0].lower()}": markdown(compared(runs, claim)) for claim in claims}


def markdown(lines: Iterator[list[str]]) -> str:
    """Return lines as a table, the first of them its head."""
    head, *rest = lines
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rest))


def about(run: Figures) -> str:
    """Say which run it was."""
    full, documents = run["rows"][0], run["documents"]["lengths"]
    lengths = ", ".join(map(str, sorted(set(documents))))
    versions = run["versions"]
    return (
        f"{len(documents)} documents of {lengths} bytes with {run['command']['needles']} facts "
        f"each, seed {run['command']['seed']}, torch {versions['torch']}, transformers "
        f"{versions['transformers']}. With the full cache the model finds "
        f"{full['needle_accuracy']:.1%} of the facts at {full['bits_per_byte']:.3f} bits per "
        "byte.\n"
    )


def evicted(run: Figures) -> Iterator[list[str]]:
    """Lay out needles and bits of what evicts: a line a system, a column a ratio."""
    rows = {(row["system"], row["ratio"]): row for row in run["rows"] if row["ratio"] is not None}
    ratios = sorted({ratio for _, ratio in rows})
    yield ["", *(f"{ratio:.0%} removed" for ratio in ratios)]
    for system in dict.fromkeys(system for system, _ in rows):
        yield [system, *(cell(rows[system, ratio]) for ratio in ratios)]


def cell(row: Figures) -> str:
    """Return needles and the change in bits of one row."""
    if row["refused"] is not None:
        return "refused"
    return f"{row['needle_accuracy']:.0%}, {row['bits_change']:+.3f}"


def stored(run: Figures) -> Iterator[list[str]]:
    """Lay out what stores all entries: bytes, needles and bits."""
    yield ["", "bytes", "needles", "bits per byte"]
    for row in run["rows"]:
        if row["store"] is not None or row["system"] == "full":
            change = "" if row["system"] == "full" else f" ({row['bits_change']:+.4f})"
            yield [
                row["system"],
                f"{row['stored_percent']:.1f} %",
                f"{row['needle_accuracy']:.1%}",
                f"{row['bits_per_byte']:.4f}{change}",
            ]


def compared(runs: dict[str, Figures], claim: str) -> Iterator[list[str]]:
    """Lay out the differences of one claim under both readings, with their intervals."""
    yield [
        "",
        "removed",
        *(f"{what}, {reading}" for reading in runs for what in ("bits", "needles")),
    ]
    verdicts = {
        reading: {
            (one["system"], one["ratio"]): one for one in run["verdicts"] if one["claim"] == claim
        }
        for reading, run in runs.items()
    }
    for system, ratio in verdicts["remedied"]:
        both = [verdicts[reading][system, ratio] for reading in runs]
        cells = [text for one in both for text in judged(one)]
        yield [system, "" if ratio is None else f"{ratio:.0%}", *cells]


def against_chance(run: Figures) -> Iterator[list[str]]:
    """Lay out how scorers differ from a random choice at 90 %."""
    yield ["", "bits", "needles"]
    for one in run["verdicts"]:
        if one["claim"] == "Scorers against chance" and one["ratio"] == 0.9:
            yield [one["system"], *judged(one)]


def facts(measured: Figures) -> Iterator[list[str]]:
    """Lay out what is left of facts, as docs/shipped_facts.py measured it."""
    yield ["", "needles", "bits per byte", "of values kept", "of heads with some, with all"]
    for name, row in measured["variants"].items():
        shares = (f"{row[what]:.1%}" for what in ("kept", "whole"))
        yield [name, f"{row['needles']:.1%}", f"{row['bits_per_byte']:.3f}", *shares]


def judged(one: Figures) -> Iterator[str]:
    """Return differences with their intervals, strong where the verdict is that they differ."""
    forms = (("bits", "+.4f"), ("needles", "+.1%"))
    for (what, form), sign in zip(forms, one["signs"], strict=True):
        middle, low, high = (format(bound, form) for bound in one[what])
        text = f"{middle} ({low} … {high})"
        yield f"**{text}**" if sign in "+-" else text
