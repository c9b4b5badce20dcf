"""The figures of a run as lines of text."""

from collections.abc import Iterator
from typing import Any

HEADS = (
    ("ratio", 5),
    ("kept %", 7),
    ("bytes %", 8),
    ("bits/byte", 10),
    ("change", 8),
    ("needles", 8),
    ("ε mean", 8),
    ("ε worst", 8),
    ("score", 7),
    ("refine", 7),
    ("select", 7),
)


def cells(row: dict[str, Any]) -> list[str]:
    """Return one row's figures, as they are read."""
    share = row["needle_accuracy"]
    seconds = [f"{value:.2f}" for value in row["seconds"].values()]
    return [
        "" if row["ratio"] is None else f"{row['ratio']:g}",
        f"{row['kept_percent']:.2f}",
        f"{row['stored_percent']:.2f}",
        f"{row['bits_per_byte']:.4f}",
        f"{row['bits_change']:+.4f}",
        "" if share is None else f"{share:.1%}",
        f"{row['deviation_mean']:.4f}",
        f"{row['deviation_worst']:.3f}",
        *seconds,
    ]


def notes(figures: dict[str, Any]) -> Iterator[str]:
    """Say what the numbers mean, and which readings were on."""
    command, documents = figures["command"], figures["documents"]
    lengths = sorted(set(documents["lengths"]))
    yield (
        f"{len(documents['lengths'])} documents of {', '.join(map(str, lengths))} tokens, "
        f"{command['needles']} facts hidden in each; seed {command['seed']}; "
        f"readings {command['readings']}; {command['implementation']} on {command['device']}."
    )
    yield (
        "bytes: of what is stored, in percent of the full cache in 16 bits. change: against the "
        "full cache. ε: how far attention moves. score, refine, select: seconds in all."
    )
    if documents["overlapping"]:
        yield "Documents overlap, since the text is short: the intervals are too narrow."
    remedied = dict.fromkeys(remedy for row in figures["rows"] for remedy in row["readings"])
    if remedied:
        yield f"Remedies on, by their errata: {', '.join(remedied)}."
    compared = [row["entries_differing"] for row in figures["rows"] if not row["refused"]]
    compared = [count for count in compared if count is not None]
    if compared:
        yield f"Entries that `optimized` keeps and `reference` does not: {sum(compared)} in all."


def table(figures: dict[str, Any]) -> Iterator[str]:
    """Return the lines of the table, and what it needs to be read."""
    rows = figures["rows"]
    width = max(len(row["system"]) for row in rows) + 1
    yield " " * width + "".join(f"{name:>{size + 1}}" for name, size in HEADS)
    for row in rows:
        if row["refused"] is not None:
            ratio = "" if row["ratio"] is None else f" at {row['ratio']:g}"
            yield f"{row['system']:<{width}} refused{ratio}: {row['refused']}"
            continue
        laid_out = zip(cells(row), HEADS, strict=True)
        line = "".join(f"{text:>{size + 1}}" for text, (_, size) in laid_out)
        yield f"{row['system']:<{width}}{line}"
    yield ""
    yield from notes(figures)


def verdict_lines(figures: dict[str, Any]) -> Iterator[str]:
    """Return each comparison, a line a pair: +, - or = where an interval says so."""
    pairs: dict[str, dict[tuple[str, str], list[str]]] = {}
    for one in figures["verdicts"]:
        pair = one["system"], one["against"]
        cell = "" if one["ratio"] is None else f"{one['ratio']:g}: "
        cell += f"{one['bits'][0]:+.4f} {sign(one['bits'], less=True)}"
        if one["needles"] is not None:
            cell += f" {one['needles'][0]:+6.1%} {sign(one['needles'])}"
        pairs.setdefault(one["claim"], {}).setdefault(pair, []).append(cell)
    for claim, some in pairs.items():
        yield f"\n{claim}: bits per byte, needles (+ better, - worse, = no difference seen)"
        width = max(len(one) for one, _ in some)
        for (one, _), found in some.items():
            yield f"  {one:<{width}}  " + "   ".join(found)


def sign(bounds: tuple[float, float, float], less: bool = False) -> str:
    """Return what an interval says."""
    _, low, high = bounds
    if low <= 0 <= high:
        return "="
    return "+" if (high < 0) == less else "-"
