"""Tables and charts of results, from runs of `python -m optimized`.

Those of SmolLM2 stand in docs/results.md and docs/result_tables.md, and `python
docs/shipped_tables.py` writes them there: docs/shipped/smollm2 has a run for each experiment and
text, with seven digits a number. `python docs/shipped_tables.py FOLDER …` puts the figures of
finished runs there, named as the folder is, and `python docs/shipped_tables.py compare FOLDER …`
prints which numbers of the tables your own runs show otherwise. Those of docs/small_model.md are
made when the site is built. There is one run for each reading: docs/shipped/words/remedied.json and
letter.json, as the command wrote them; facts.json beside them is of a script of commit e5a2e29c.
What the pages say is typed there, and docs/test_shipped.py compares the numbers.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from drawing import DOCS, compact

from optimized.bench.report import markdown
from optimized.readings import READINGS
from optimized.study import chart
from optimized.study.experiments import experiments
from optimized.study.significance import chances, differences, holm
from optimized.study.table import widen

RUNS = DOCS / "shipped"
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


def read(model: str, name: str) -> Figures:
    """Return a file of docs/shipped."""
    return json.loads((RUNS / model / f"{name}.json").read_text())


def tables() -> dict[str, str]:
    """Return the tables by the names of the files that the docs include."""
    runs = {reading: read("words", reading) for reading in reversed(READINGS)}
    first = runs["remedied"]
    made = {
        "evicted": evicted(first),
        "stored": stored(first),
        "chance": against_chance(first),
        "budgets": budgets(first),
    } | {name: compared(runs, claim) for name, claim in CLAIMS.items()}
    return {
        f"words_{name}": re.sub(r"(?<=\d)%", " %", markdown(lines)) for name, lines in made.items()
    }


def evicted(run: Figures) -> Iterator[list[str]]:
    """Yield facts and bits of systems that evict: a row per system, a column per ratio."""
    rows = {(row["system"], row["ratio"]): row for row in run["rows"] if row["ratio"] is not None}
    ratios = sorted({ratio for _, ratio in rows})
    yield ["", *(f"{ratio:.0%} removed" for ratio in ratios)]
    for system in dict.fromkeys(system for system, _ in rows):
        cells = [rows[system, ratio] for ratio in ratios]
        yield [
            system,
            *(
                "refused"
                if row["refused"] is not None
                else f"{row['needle_accuracy']:.0%}, {row['bits_change']:+.3f}"
                for row in cells
            ),
        ]


def stored(run: Figures) -> Iterator[list[str]]:
    """Yield bytes, needles and bits of systems that store all entries."""
    yield ["", "bytes", "facts", "bits per byte"]
    for row in run["rows"]:
        if row["store"] is not None or row["system"] == "full":
            change = "" if row["system"] == "full" else f" ({row['bits_change']:+.4f})"
            bits = f"{row['bits_per_byte']:.4f}{change}"
            size = f"{row['stored_percent']:.1f} %"
            yield [row["system"], size, f"{row['needle_accuracy']:.1%}", bits]


def compared(runs: dict[str, Figures], claim: str) -> Iterator[list[str]]:
    """Yield the differences of one claim under both readings, with their intervals."""
    yield ["", "removed", *(f"{what}, {name}" for name in runs for what in ("bits", "facts"))]
    both = [[one for one in run["verdicts"] if one["claim"] == claim] for run in runs.values()]
    for same in zip(*both, strict=True):
        ratio = same[0]["ratio"]
        cells = [text for one in same for text in judged(one, hidden(runs["remedied"]))]
        yield [same[0]["system"], "" if ratio is None else f"{ratio:.0%}", *cells]


def against_chance(run: Figures) -> Iterator[list[str]]:
    """Yield how scorers differ from a random choice at 90 %."""
    yield ["", "bits", "facts"]
    for one in run["verdicts"]:
        if one["claim"] == "Scorers against chance" and one["ratio"] == 0.9:
            yield [one["system"], *judged(one, hidden(run))]


def judged(one: Figures, facts: int) -> tuple[str, str]:
    """Return differences with their intervals, bold where the verdict is a difference."""
    bits, needles = (sign in "+-" for sign in one["signs"])
    return spread(one["bits"], "+.4f", bits), spread(widen(one["needles"], facts), "+.1%", needles)


def hidden(run: Figures) -> int:
    """Return the number of facts hidden in the documents of a run."""
    return run["command"]["needles"] * len(run["documents"]["lengths"])


def spread(interval: Sequence[float], form: str, sure: bool = False) -> str:
    """Return a mean with its interval, bold where a test finds that it is not 0."""
    middle, low, high = (format(bound, form) for bound in interval)
    text = f"{middle} ({low} … {high})"
    return f"**{text}**" if sure else text


def budgets(run: Figures) -> Iterator[list[str]]:
    """Yield, for each byte budget, the best system and those not significantly different.

    A comparison of the run uses the run's p-value. The other comparisons of a row are corrected
    together.
    """
    known = {
        (what, frozenset(((one["system"], one["ratio"]), (one["against"], one["ratio"])))): p
        for one in run["verdicts"]
        for what, p in zip(("bits", "needles"), one["p"], strict=True)
    }
    same = "no certain difference from it"
    yield ["bytes", "most facts", same, "text nearest to the full cache", same]
    for budget in BUDGETS:
        ranked = {what: ranking(run, budget, of) for what, of in GOOD.items()}
        asked = {
            pair(what, best, row): differences(GOOD[what](best), GOOD[what](row))
            for what, (best, *others) in ranked.items()
            for row in others
            if pair(what, best, row) not in known
        }
        p = known | dict(zip(asked, holm(chances(list(asked.values()), seed=0)), strict=True))
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


TABLE = re.compile(r"<!-- table (\S+)((?: \S+)*) -->\n.*?<!-- end -->", re.DOTALL)
TEXTS = ("prose", "noise", "code")
LONGER = {"2K": "1 024 to 2 048", "4K": "2 048 to 4 096"}
"""Names of runs with longer documents, and their lengths: `HubKV-Tab1-2K-prose`."""
MINUS = re.compile(r"(?<![\w.])-(?=\d)")


def shortened(value: Any) -> Any:
    """Return figures with seven digits a number; whole numbers stay exact."""
    if isinstance(value, dict):
        return {name: shortened(part) for name, part in value.items()}
    if isinstance(value, list):
        return [shortened(part) for part in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else float(f"{value:.7g}")
    return value


def ship(folder: Path) -> None:
    """Write the figures of a finished run into docs/shipped/smollm2, named as its folder is.

    The digests of what was kept stay behind: another processor keeps other entries at a tie.
    """
    figures = json.loads((folder / "figures.json").read_text())
    figures["command"]["out"] = None
    for row in figures["rows"]:
        row.pop("digest", None)
    text = json.dumps(shortened(figures), separators=(",", ":"), ensure_ascii=False)
    (RUNS / "smollm2" / f"{folder.name}.json").write_text(f"{text}\n")


def compare(folder: Path) -> str:
    """Return which numbers of the tables a finished run shows otherwise than the shipped one."""
    own = json.loads((folder / "figures.json").read_text())
    asked = own["command"]
    same = ("experiment", "text", "context", "documents", "needles", "systems", "ratios")
    for file in sorted((RUNS / "smollm2").glob(f"{asked['experiment']}-*.json")):
        shipped = read("smollm2", file.stem)
        if all(shipped["command"][option] == asked[option] for option in same):
            break
    else:
        return f"{folder}: no shipped run has the same {', '.join(same)}"
    count, other = 0, []
    for old, new in zip(shipped["verdicts"], own["verdicts"], strict=True):
        numbers = [in_tables(*side) for side in ((shipped, old), (own, new))]
        count += len(numbers[0])
        for printed, found in zip(*numbers, strict=True):
            if printed != found:
                other.append(f"  {described(new, 'long')}: {found} in place of {printed}")
    return "\n".join(
        [
            f"{folder}: {count - len(other)} of {count} numbers are those of {file.stem}; on "
            "another processor bits per byte may differ in the fourth decimal",
            *other,
        ]
    )


def in_tables(run: Figures, one: Figures) -> list[str]:
    """Return the numbers of one comparison as the long tables print them, with their verdicts."""
    return [
        f"{number}{' with a verdict' * ('**' in text)}"
        for text in (described(one, "long"), *cells({"": run}, [one], "long"))
        for number in re.findall(r"[-+]?\d+\.\d+", text)
    ]


def with_tables(page: str, form: str) -> str:
    """Return a page with the table of each experiment between its two comments.

    Behind the name in the first comment stand the ratios, the systems or the pairs, such as
    `hex-3>full` or `kvzip+hubkv>kvzip@0.9`, whose rows are shown, if not all are.
    """

    def filled(found: re.Match[str]) -> str:
        rows = of_experiment(found[1], found[2].split(), form)
        table = MINUS.sub("−", re.sub(r"(?<=\d)%", " %", markdown(rows)))
        about = f"\n{conditions(found[1])}\n" if form == "long" else ""
        return f"<!-- table {found[1]}{found[2]} -->\n{about}\n{table}\n<!-- end -->"

    return TABLE.sub(filled, page)


def runs_of(name: str) -> dict[str, Figures]:
    """Return the runs of an experiment by the texts that they read."""
    names = {text: f"{name}-{text}" for text in TEXTS}
    there = {file.stem for file in (RUNS / "smollm2").iterdir()}
    return {text: read("smollm2", file) for text, file in names.items() if file in there}


def conditions(name: str) -> str:
    """Return a sentence on the documents and the device of an experiment's runs."""
    runs = runs_of(name)
    first = next(iter(runs.values()))
    lengths = ", ".join(map(str, sorted(set(first["documents"]["lengths"]))))
    full = (
        f"{text} {run['rows'][0]['needle_accuracy']:.1%} of {asked(run)}"
        for text, run in runs.items()
        if not run["no_needles"]
    )
    few = " Too few documents for a verdict." * any("?" in x["signs"] for x in first["verdicts"])
    where = "a GPU" if first["command"]["device"] == "cuda" else "a CPU"
    return (
        f"{len(first['documents']['lengths'])} documents a text of {lengths} tokens, on {where}, "
        f"torch {first['versions']['torch']}, Python {first['versions']['python']}. The full cache "
        f"answers, of the questions that count: {'; '.join(full)}.{few}{options(name, first)}"
    ).replace("%", " %")


def options(name: str, run: Figures) -> str:
    """Return a sentence on the options of a run that its experiment has not."""
    command = run["command"]
    if name.rpartition("-")[2] not in LONGER:
        if command["documents"] >= 12:
            return ""
        return (
            f" In place of 24: `--documents {command['documents']}`, since one of noise took about "
            "ten minutes beside other work."
        )
    lists = [f"--systems {' '.join(command['systems'])}"]
    if run["rows"][1]["ratio"] is not None:
        lists.append(f"--ratios {' '.join(map(str, command['ratios']))}")
    return (
        f" Behind the experiment: `--context {command['context']} --documents "
        f"{command['documents']} {' '.join(lists)}`."
    )


def of_experiment(name: str, only: Sequence[str], form: str) -> Iterator[list[str]]:
    """Yield the comparisons of an experiment on SmolLM2, a column or two for each text."""
    runs = runs_of(name)
    columns = ("facts", "bits per byte") if form == "long" else ("answers",)
    unit = ", points" if form == "short" else ""
    yield ["", *(f"{what}, {text}{unit}" for what in columns for text in runs)]
    found = [
        {
            (one["claim"], one["system"], one["against"], one["ratio"]): one
            for one in run["verdicts"]
        }
        for run in runs.values()
    ]
    named = [(name, key) for key in found[0] for name in names_of(*key[1:])]
    shown = dict.fromkeys(key for wanted in only for name, key in named if name == wanted)
    for key in shown if only else found[0]:
        same = [run[key] for run in found]
        yield [described(same[0], form), *cells(runs, same, form)]


def names_of(system: str, against: str, ratio: float | None) -> tuple[str, ...]:
    """Return the names by which a page asks for a comparison."""
    return system, str(ratio), f"{system}>{against}", f"{system}>{against}@{ratio}"


def described(one: Figures, form: str) -> str:
    """Return what a comparison is of: two systems, and the budget or bytes of the first."""
    ratio, names = one["ratio"], [str(one["system"]), str(one["against"])]
    if form == "short":
        names = [SHORT.get(name, name) for name in names]
    if ratio is None:
        budget = f"{one['stored'][0]:.1f} % of the bytes"
    else:
        budget = f"{ratio} entries" if ratio >= 1 else f"{100 * ratio:.4g}% removed"
    both = "{} against {}".format(*(name if " " in name else f"`{name}`" for name in names))
    return f"{both}, {budget}"


SHORT = {
    "hex-3:control.mask=random": "as many random values",
    "hex-3:control.mask=extremes": "as many largest and smallest values",
    "hex-3:control.mask=extremes,hex.density=0.015625,hex.near=True": "half as many largest and "
    "smallest values",
    "hex-3:hex.tile=True": "one tile of the expander",
    "hex-3:hex.density=0": "no expander",
}
"""What short tables call systems with settings."""


def cells(runs: dict[str, Figures], same: Sequence[Figures], form: str) -> Iterator[str]:
    """Yield the cells of one comparison, made in several runs."""
    for run, one in zip(runs.values(), same, strict=True):
        if one["needles"] is None:
            yield "–"
            continue
        change = widen(one["needles"], asked(run))
        sure = one["signs"][1] in "+-"
        if form == "short":
            yield spread([100 * bound for bound in change], "+.1f", sure)
            continue
        found = [share(run, one[side], one["ratio"]) for side in ("against", "system")]
        yield f"{found[0]:.1%} → {found[1]:.1%}: {spread(change, '+.1%', sure)}"
    if form == "long":
        yield from (spread(one["bits"], "+.4f", one["signs"][0] in "+-") for one in same)


def asked(run: Figures) -> int:
    """Return the number of questions of a run that count."""
    return sum(run["kinds"][kind]["counts"] for of in run["documents"]["kinds"] for kind in of)


def share(run: Figures, system: str, ratio: float | None) -> float:
    """Return the share of facts that a system finds; the full cache has no ratio."""
    rows = {(row["system"], row["ratio"]): row for row in run["rows"]}
    return (rows.get((system, ratio)) or rows[system, None])["needle_accuracy"]


def tables_page() -> str:
    """Return the page of all tables and figures of the papers: the run, or why there is none."""
    parts = [BEFORE]
    for name, about in experiments().items():
        parts.append(f"## {name}\n")
        if "claim" in about:
            parts.append(f"{about['claim']}\n")
        if "skip" in about:
            parts.append(f"*Not run.* {about['skip']}\n")
        if "run" in about:
            parts.append(f"*Another command shows it:* `{about['run']}`\n")
        if "options" in about:
            parts.append(f"*Against it would speak:* {about['refuted']}\n")
        if name in DRAWN:
            parts += captions(DRAWN[name])
        elif runs_of(name):
            parts.append(f"<!-- table {name} -->\n<!-- end -->\n")
        elif "options" in about:
            parts.append("*Not run yet.*\n")
        for longer, tokens in LONGER.items():
            if runs_of(f"{name}-{longer}"):
                parts.append(f"### At {tokens} tokens\n")
                parts.append(f"<!-- table {name}-{longer} -->\n<!-- end -->\n")
    return with_tables("\n".join(parts), "long")


def pages() -> dict[Path, str]:
    """Return the pages with the tables of the runs."""
    short = DOCS / "results.md", DOCS / "hex" / "expander.md"
    return {page: with_tables(page.read_text(), "short") for page in short} | {
        DOCS / "result_tables.md": tables_page()
    }


DRAWN = {
    "HubKV-Fig1": "hubkv_clusters",
    "HubKV-Fig2": "hubkv_columns",
    "HubKV-Fig9": "hubkv_density",
    "GraphKV-Fig2": "graphkv_likeness",
    "GraphKV-Fig7": "graphkv_planes",
}
"""Experiments that are a picture of the command's report; one run draws all of them."""


def captions(picture: str) -> Iterator[str]:
    """Yield what a picture shows in each text."""
    for text, run in runs_of("HubKV-Fig1").items():
        for one in run["pictures"]:
            if one["name"] == picture:
                yield f"*In {text}:* {one['caption']}\n".replace("%", " %")


BEFORE = """# All tables and figures of the papers, on SmolLM2

For each, the paper's claim and what would speak against it, both written before the run; then the
run. [The results](results.md) say how to read a cell, and what follows. The name of a section is
that of its experiment: `python -m optimized --model smollm2 --experiment ID --text TEXT --documents
24 --needles 5`. It takes 10 to 40 minutes on a core; ours had one thread (`OMP_NUM_THREADS=1`). The
figures are in `docs/shipped/smollm2`; in a clone, `python docs/shipped_tables.py compare
kvspec-report` prints what a run of yours shows otherwise.
"""


def charts() -> dict[str, str]:
    """Return the charts of facts and of bits against bytes, as SVG."""
    drawn = {}
    for name, (figure, systems) in CHARTS.items():
        rows = read(name.partition("_")[0], "remedied")["rows"]
        needles = figure == "needle_accuracy"
        svg = chart.quality_against_bytes(
            chart.series([row for row in rows if systems(row)], figure),
            "facts found" if needles else "bits per byte above the full cache",
            rows[0]["needle_accuracy"] if needles else 0.0,
            needles,
        )
        assert svg is not None
        drawn[name] = compact(svg)
    return drawn


def refined_by(refinement: str) -> Callable[[Figures], bool]:
    """Return whether a row is a system of a refinement, or one that it refines."""
    systems = {row["system"] for row in read("words", "remedied")["rows"]}
    refined = {system for system in systems if system.endswith(f"+{refinement}")}
    both = refined | {system.removesuffix(f"+{refinement}") for system in refined}
    return lambda row: row["store"] is None and row["system"] in both


CHARTS: dict[str, tuple[str, Callable[[Figures], bool]]] = {
    "words_chart_facts": ("needle_accuracy", lambda _: True),
    "words_chart_text": ("bits_change", lambda _: True),
    "words_chart_hubkv": ("needle_accuracy", refined_by("hubkv")),
    "words_chart_graphkv": ("needle_accuracy", refined_by("graphkv")),
    "words_chart_quantised": ("bits_change", lambda row: row["store"] is not None),
}
"""For each chart the figure, and which rows of the run it shows."""


if __name__ == "__main__":
    if sys.argv[1:2] == ["compare"]:
        print(*(compare(Path(name)) for name in sys.argv[2:]), sep="\n")
    else:
        for name in sys.argv[1:]:
            ship(Path(name))
        for page, text in pages().items():
            page.write_text(text)
