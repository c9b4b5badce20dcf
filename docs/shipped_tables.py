"""Tables of the docs from runs of `python -m optimized` on the shipped models.

There is one run for each reading: docs/shipped/words/remedied.json and letter.json, as the command
wrote them. facts.json beside them is written by docs/shipped_ablations.py. The model of bytes has
the same files.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from optimized.bench.report import markdown
from optimized.readings import READINGS
from optimized.study.table import widen

RUNS = Path(__file__).parent / "shipped"
Figures = dict[str, Any]

CLAIMS = {
    "hubkv": "HubKV against its base",
    "graphkv": "GraphKV against its base",
    "quantised": "Quantised against the full cache",
}
SURE = 0.05
BUDGETS = (50.0, 35.0, 25.0, 10.0, 5.0)
SLACK = 0.5
"""Tolerance of budgets in percent, for positions and offsets stored with the entries."""


def tables() -> dict[str, str]:
    """Return the tables by the names of the files that the docs include."""
    return {
        f"{folder.name}_{name}": re.sub(r"(?<=\d)%", " %", text)
        for folder in sorted(RUNS.iterdir())
        for name, text in of_model(folder).items()
    }


def of_model(folder: Path) -> dict[str, str]:
    """Return the tables of one model."""
    runs = {
        reading: json.loads((folder / f"{reading}.json").read_text())
        for reading in reversed(READINGS)
    }
    first, parts = runs["remedied"], json.loads((folder / "facts.json").read_text())
    return {
        "run": about(first),
        "evicted": markdown(evicted(first)),
        "stored": markdown(stored(first)),
        "chance": markdown(against_chance(first)),
        "budgets": best(first),
        "modes": markdown(modes(parts)),
        "facts_run": about_facts(parts),
        "facts": markdown(facts(parts, first)),
        "heads": markdown(heads(parts)),
        "tokens": markdown(tokens(parts)),
        "graph": markdown(graph(parts)),
    } | {name: markdown(compared(runs, claim)) for name, claim in CLAIMS.items()}


def about(run: Figures) -> str:
    """Return a sentence on the documents and versions of a run."""
    full, documents = run["rows"][0], run["documents"]["lengths"]
    lengths = ", ".join(map(str, sorted(set(documents))))
    versions = run["versions"]
    return (
        f"{len(documents)} documents of {lengths} tokens with {run['command']['needles']} facts "
        f"each, seed {run['command']['seed']}, torch {versions['torch']}, transformers "
        f"{versions['transformers']}. With the full cache the model finds "
        f"{full['needle_accuracy']:.1%} of the facts at {full['bits_per_byte']:.3f} bits per "
        "byte.\n"
    )


def hidden(run: Figures) -> int:
    """Return the number of facts hidden in the documents of a run."""
    return run["command"]["needles"] * len(run["documents"]["lengths"])


def evicted(run: Figures) -> Iterator[list[str]]:
    """Yield facts and bits of systems that evict: a row per system, a column per ratio."""
    rows = {(row["system"], row["ratio"]): row for row in run["rows"] if row["ratio"] is not None}
    ratios = sorted({ratio for _, ratio in rows})
    yield ["", *(f"{ratio:.0%} removed" for ratio in ratios)]
    for system in dict.fromkeys(system for system, _ in rows):
        yield [system, *(cell(rows[system, ratio]) for ratio in ratios)]


def cell(row: Figures) -> str:
    """Return facts and the change in bits of one row."""
    if row["refused"] is not None:
        return "refused"
    return f"{row['needle_accuracy']:.0%}, {row['bits_change']:+.3f}"


def stored(run: Figures) -> Iterator[list[str]]:
    """Yield bytes, needles and bits of systems that store all entries."""
    yield ["", "bytes", "facts", "bits per byte"]
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
    """Yield the differences of one claim under both readings, with their intervals."""
    yield [
        "",
        "removed",
        *(f"{what}, {reading}" for reading in runs for what in ("bits", "facts")),
    ]
    verdicts = {
        reading: {
            (one["system"], one["ratio"]): one for one in run["verdicts"] if one["claim"] == claim
        }
        for reading, run in runs.items()
    }
    for system, ratio in verdicts["remedied"]:
        both = [verdicts[reading][system, ratio] for reading in runs]
        facts = hidden(runs["remedied"])
        cells = [text for one in both for text in judged(one, facts)]
        yield [system, "" if ratio is None else f"{ratio:.0%}", *cells]


def against_chance(run: Figures) -> Iterator[list[str]]:
    """Yield how scorers differ from a random choice at 90 %."""
    yield ["", "bits", "facts"]
    for one in run["verdicts"]:
        if one["claim"] == "Scorers against chance" and one["ratio"] == 0.9:
            yield [one["system"], *judged(one, hidden(run))]


def best(run: Figures) -> str:
    """Return the table of the best systems for each byte budget, if SciPy is installed."""
    try:
        return markdown(budgets(run))
    except ImportError as reason:
        return f"Not told: {reason}.\n"


def budgets(run: Figures) -> Iterator[list[str]]:
    """Yield, for each byte budget, the best system and those not significantly different.

    A comparison of the run uses the run's p-value. The other comparisons of a row are corrected
    together.
    """
    from optimized.study.significance import chances, differences, holm

    judged = {
        (what, frozenset(((one["system"], one["ratio"]), (one["against"], one["ratio"])))): p
        for one in run["verdicts"]
        for what, p in zip(("bits", "needles"), one["p"], strict=True)
    }
    yield [
        "bytes",
        "most facts",
        "no certain difference from it",
        "text nearest to the full cache",
        "no certain difference from it",
    ]
    for budget in BUDGETS:
        ranked = {what: ranking(run, budget, of) for what, of in GOOD.items()}
        asked = {
            pair(what, best, row): differences(GOOD[what](best), GOOD[what](row))
            for what, (best, *others) in ranked.items()
            for row in others
            if pair(what, best, row) not in judged
        }
        p = judged | dict(zip(asked, holm(chances(list(asked.values()), seed=0)), strict=True))
        line = [f"{budget:.0f} %"]
        for what, (best, *others) in ranked.items():
            alike = [row["system"] for row in others if p[pair(what, best, row)] > SURE]
            facts, bits = f"{best['needle_accuracy']:.1%}", f"{best['bits_change']:+.3f}"
            shown = facts if what == "needles" else bits
            line += [f"{best['system']}: {shown}", ", ".join(alike) or "–"]
        yield line


GOOD: dict[str, Callable[[Figures], list[float]]] = {
    "needles": lambda row: list(map(mean, row["found_by_document"])),
    "bits": lambda row: [-bits for bits in row["bits_by_document"]],
}
"""Figures by document for which more is better."""


def pair(what: str, one: Figures, other: Figures) -> tuple[str, frozenset[Any]]:
    """Return the key of a comparison of two rows."""
    return what, frozenset((row["system"], row["ratio"]) for row in (one, other))


def ranking(run: Figures, budget: float, of: Callable[[Figures], list[float]]) -> list[Figures]:
    """Return each system's largest row within a budget, the best system first."""
    rows = [row for row in run["rows"][1:] if row["refused"] is None]
    within = [row for row in rows if row["stored_percent"] <= budget + SLACK]
    spent = {row["system"]: row for row in sorted(within, key=lambda row: row["stored_percent"])}
    return sorted(spent.values(), key=lambda row: -mean(of(row)))


def modes(measured: Figures) -> Iterator[list[str]]:
    """Yield what each mode of HEX costs if the second half comes token by token.

    A difference from appending is bold where its test is significant.
    """
    yield ["", "deviation of attention", "bits, against the full cache", "bits, against appending"]
    for preset, rows in measured["modes"].items():
        for mode, row in rows.items():
            change = row.get("against append")
            moved = change is not None and change["p of deviation"] <= SURE
            yield [
                f"{preset}, {mode}",
                spread(row["deviation"], ".1%", moved),
                spread(row["bits"], "+.4f"),
                ""
                if change is None
                else spread(change["bits"], "+.4f", change["p of bits"] <= SURE),
            ]


def spread(interval: Sequence[float], form: str, sure: bool = False) -> str:
    """Return a mean with its interval, bold where a test finds that it is not 0."""
    middle, low, high = (format(bound, form) for bound in interval)
    text = f"{middle} ({low} … {high})"
    return f"**{text}**" if sure else text


def about_facts(measured: Figures) -> str:
    """Return sentences on the run of shipped_ablations.py, and on the clustering of scores."""
    about = measured["about"]
    middle, low, high = (format(bound, ".2f") for bound in measured["autocorrelation"])
    return (
        f"{about['documents']} documents with {about['needles']} facts each, torch "
        f"{about['torch']}. The autocorrelation of KVzip's scores at distance 1 is {middle} "
        f"({low} … {high}). {measured['near_1']:.1%} of them are 0.999 or more; the head with "
        f"most has {measured['near_1_in_one_head']:.1%}.\n"
    )


def facts(measured: Figures, run: Figures) -> Iterator[list[str]]:
    """Yield the facts that each variant finds, and the differences from KVzip.

    HubKV's own verdict is the run's, where the run has the ratio.
    """
    by_run = {str(one["ratio"]): one for one in run["verdicts"] if one["system"] == "kvzip+hubkv"}
    ratios = measured["ratios"]
    yield ["", *(f"{float(ratio):.0%} removed" for ratio in ratios)]
    for name in next(iter(ratios.values())):
        cells = []
        for ratio, rows in ratios.items():
            cells.append(f"{rows[name]['needles']:.1%}")
            if (change := rows[name].get("against KVzip")) is not None:
                sure = change["p of needles"] <= SURE
                cells[-1] += ": " + spread(widen(change["needles"], hidden(run)), "+.1%", sure)
            elif name == "HubKV":
                cells[-1] += ": " + list(judged(by_run[ratio], hidden(run)))[1]
        yield [name, *cells]


def heads(measured: Figures) -> Iterator[list[str]]:
    """Yield how much of the facts the heads keep, at the ratio where HubKV differs most."""
    rows = measured["ratios"]["0.95"]
    yield ["", "bits per byte", "of values kept", "of heads with some, with all"]
    for name, row in rows.items():
        shares = (f"{row[what]:.1%}" for what in ("kept", "whole"))
        yield [name, f"{row['bits_per_byte']:.3f}", *shares]


def tokens(measured: Figures) -> Iterator[list[str]]:
    """Yield the facts that KVzip and HubKV find, by the number of tokens of their values."""
    ratios = measured["ratios"]
    sizes = next(iter(ratios.values()))["HubKV"]["by tokens"]
    yield ["value of", "facts", *(f"{float(ratio):.0%} removed" for ratio in ratios)]
    for size, one in sizes.items():
        cells = []
        for rows in ratios.values():
            alone, refined = (rows[name]["by tokens"][size] for name in ("KVzip", "HubKV"))
            bounds = widen(refined["against KVzip"], one["facts"])[1:]
            low, high = (format(bound, "+.1%") for bound in bounds)
            cells.append(f"{alone['needles']:.1%} → {refined['needles']:.1%} ({low} … {high})")
        yield [f"{size} token{'s' if int(size) > 1 else ''}", str(one["facts"]), *cells]


def graph(measured: Figures) -> Iterator[list[str]]:
    """Yield the facts that GraphKV finds, with its own graph and with keys of other tokens."""
    yield ["", "removed", "base", "GraphKV", "keys of other tokens", "the graph's own share"]
    for row in measured["graph"]:
        cells = [f"{share:.1%}" for share in row["needles"]]
        sure = row["p of graph against shuffled"] <= SURE
        facts = measured["about"]["documents"] * measured["about"]["needles"]
        share = spread(widen(row["graph against shuffled"], facts), "+.1%", sure)
        yield [row["base"], f"{row['ratio']:.0%}", *cells, share]


def judged(one: Figures, facts: int) -> Iterator[str]:
    """Yield differences with their intervals, bold where the verdict is a difference."""
    yield spread(one["bits"], "+.4f", one["signs"][0] in "+-")
    yield spread(widen(one["needles"], facts), "+.1%", one["signs"][1] in "+-")
