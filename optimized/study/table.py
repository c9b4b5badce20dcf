"""The figures of a run as lines of text."""

from collections.abc import Iterator, Sequence
from typing import Any

from scipy.stats import binomtest

COLUMNS = (
    ("ratio", 5, "{ratio:g}"),
    ("kept %", 7, "{kept_percent:.2f}"),
    ("bytes %", 8, "{stored_percent:.2f}"),
    ("bits/byte", 10, "{bits_per_byte:.4f}"),
    ("change", 8, "{bits_change:+.4f}"),
    ("needles", 8, "{needle_accuracy:.1%}"),
    ("ε mean", 8, "{deviation_mean:.4f}"),
    ("ε worst", 8, "{deviation_worst:.3f}"),
    ("score", 7, "{seconds[scoring]:.2f}"),
    ("select", 7, "{seconds[selecting]:.2f}"),
)
"""The head of each column, its width, and the format of a row's figure."""


def columns(figures: dict[str, Any]) -> list[tuple[str, int, str]]:
    """Return the columns of a run."""
    hidden = {"needles"} if figures["no_needles"] else set()
    hidden |= set() if figures["documents"]["continuation"] else {"bits/byte", "change"}
    if figures["command"].get("interval") is not None:
        hidden |= {"kept %", "ε mean", "ε worst", "score"}
    return [column for column in COLUMNS if column[0] not in hidden]


def cells(row: dict[str, Any], figures: dict[str, Any]) -> list[str]:
    """Return the formatted figures of one row; the full cache and quantisers have no ratio."""
    without = "ratio" if row["ratio"] is None else None
    return ["" if name == without else form.format(**row) for name, _, form in columns(figures)]


def notes(figures: dict[str, Any]) -> Iterator[str]:
    """Yield notes: what the numbers mean, the settings, and the corrections in use."""
    command, documents = figures["command"], figures["documents"]
    lengths = sorted(set(documents["lengths"]))
    yield (
        f"{len(documents['lengths'])} documents of {', '.join(map(str, lengths))} tokens, "
        f"{sum(map(len, documents['kinds']))} questions; seed {command['seed']}; "
        f"readings {command['readings']}; {command['implementation']} on {command['device']}."
    )
    yield (
        "bytes: stored bytes, in percent of the full cache in 16 bits. change: against the full "
        "cache. ε: how far attention moves. score, select: total seconds."
    )
    if figures["no_needles"]:
        yield figures["no_needles"]
    elif len(figures["kinds"]) > 1:
        said = {True: [], False: []}
        for kind, found in figures["kinds"].items():
            said[found["counts"]].append(f"{kind} {found['full']:.0%}")
        yield f"Kinds of questions, with the score of the full cache: {', '.join(said[True])}."
        if said[False]:
            yield f"Left out, since the full cache does not solve them: {', '.join(said[False])}."
    if documents["overlapping"]:
        yield "Documents overlap (the text is short): intervals are too narrow, verdicts too sure."
    settings: dict[str, dict[str, None]] = {}
    for row in figures["rows"]:
        for name, value in row["settings"].items():
            settings.setdefault(f"{name} = {value}", {})[row["system"]] = None
    if settings:
        listed = "; ".join(f"{setting} in {', '.join(of)}" for setting, of in settings.items())
        yield f"Settings: {listed}."
    remedied = dict.fromkeys(remedy for row in figures["rows"] for remedy in row["readings"])
    if remedied:
        yield f"Corrections in use, by their errata: {', '.join(remedied)}."
    counts = [row.get("entries_differing") for row in figures["rows"]]
    compared = [count for count in counts if count is not None]
    if compared:
        yield f"Entries that `optimized` keeps and `reference` does not: {sum(compared)} in all."


def table(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table, then its notes."""
    rows, heads = figures["rows"], columns(figures)
    width = max(len(row["system"]) for row in rows) + 1
    yield " " * width + "".join(f"{name:>{size + 1}}" for name, size, _ in heads)
    for row in rows:
        if row["refused"] is not None:
            ratio = "" if row["ratio"] is None else f" at {row['ratio']:g}"
            yield f"{row['system']:<{width}} refused{ratio}: {row['refused']}"
            continue
        laid_out = zip(cells(row, figures), heads, strict=True)
        line = "".join(f"{text:>{size + 1}}" for text, (_, size, _) in laid_out)
        yield f"{row['system']:<{width}}{line}"
    yield ""
    yield from notes(figures)


def verdict_lines(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the comparisons, one line for each pair, with the signs of the tests."""
    pairs: dict[str, dict[tuple[str, str], list[str]]] = {}
    few = ", ? too few documents" if any("?" in one["signs"] for one in figures["verdicts"]) else ""
    tested = {
        "bits per byte": figures["documents"]["continuation"],
        "needles": not figures["no_needles"],
    }
    what = ", ".join(name for name, made in tested.items() if made)
    for one in figures["verdicts"]:
        pair = one["system"], one["against"]
        cell = "" if one["ratio"] is None else f"{one['ratio']:g}: "
        if one["bits"] is not None:
            cell += f"{one['bits'][0]:+.4f} {one['signs'][0]}"
        if one["needles"] is not None:
            cell += f" {one['needles'][0]:+6.1%} {one['signs'][1]}"
        pairs.setdefault(one["claim"], {}).setdefault(pair, []).append(cell)
    for claim, compared in pairs.items():
        yield f"\n{claim}: {what} (+ better, - worse, = not significant{few})"
        width = max(len(one) for one, _ in compared)
        for (one, _), found in compared.items():
            yield f"  {one:<{width}}  " + "   ".join(found)
    if pairs:
        yield f"\n{describe_tests(figures)}"


def describe_tests(figures: dict[str, Any]) -> str:
    """Return a text on the tests of the verdicts, and on the number of documents they need."""
    tests, read = figures["tests"], len(figures["documents"]["lengths"])
    said = (
        f"Verdicts come from sign-flip tests over {read} documents at the 5 % level, corrected by "
        f"Holm's method for all {tests['count']} tests of this run."
    )
    if read < tests["documents"]:
        said += f" These tests need at least {tests['documents']} documents: there is no verdict."
    return said


def widen(found: Sequence[Any], facts: int) -> Sequence[Any]:
    """Return a difference in facts and its bounds: Wilson's if all documents have the same one.

    There bootstrap bounds are equal, as though no other fact could differ.
    """
    mean, low, high = found
    if low is None or low < high:
        return found
    least, most = binomtest(round(abs(mean) * facts), facts).proportion_ci(method="wilson")
    return mean, *sorted((least, most) if mean > 0 else (-most, -least if mean else most))


def between(bounds: Sequence[float | None], form: str) -> str:
    """Return the formatted bounds of an interval, or an empty text."""
    return " … ".join(format(bound, form) for bound in bounds[1:] if bound is not None)
