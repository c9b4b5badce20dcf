"""The report: a self-contained HTML page."""

from collections.abc import Iterator, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from optimized.study import table
from optimized.study.significance import WORDS

if TYPE_CHECKING:  # what draws imports matplotlib, which may be missing
    from optimized.study.pictures import Picture

STYLE = """
:root { --page: #ffffff; --ink: #1d2330; --soft: #667085; --line: #dfe3ea; --good: #1a7f45;
  --bad: #b3342a; --hit: 31, 119, 180; color-scheme: light dark; }
@media (prefers-color-scheme: dark) { :root { --page: #14171d; --ink: #e6e9ef; --soft: #98a2b3;
  --line: #303744; --good: #55c48a; --bad: #f0857b; --hit: 88, 166, 230; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem clamp(.8rem, 3vw, 2rem) 4rem; max-width: 1120px;
  background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 1rem 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
p, li { max-width: 46rem; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
.wide table { width: 100%; }
th, td { padding: .28rem .6rem; text-align: right; white-space: nowrap; }
.wide thead th { border-bottom: 1px solid var(--line); background: var(--page); }
.wide th:first-child, .wide td:first-child { text-align: left; position: sticky; left: 0;
  background: var(--page); font-weight: 600; }
.wide tr.first td, .wide tr.first th { border-top: 1px solid var(--line); }
.words { text-align: left; white-space: normal; min-width: 10rem; }
.better { color: var(--good); font-weight: 600; } .worse { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; }
figure .wide > * { display: block; min-width: 640px; width: 100%; height: auto; }
figure .wide img { min-width: 720px; padding: .6rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 0; }
figcaption { max-width: 46rem; margin-top: .4rem; }
.heats { display: flex; flex-wrap: wrap; gap: 1rem 1.4rem; }
.heat { font-size: .72rem; } .heat caption { text-align: left; font-weight: 600; }
.heat th { font-weight: 400; color: var(--soft); padding: .1rem .4rem .1rem 0; }
.heat .hit { min-width: 2.7rem; text-align: center;
  background: rgba(var(--hit), calc(.06 + .94 * var(--share))); }
.heat .dark { color: var(--page); }
summary { cursor: pointer; font-weight: 600; margin: .8rem 0 .5rem; }
code { font-size: .9em; }
"""


def page(figures: dict[str, Any], shown: "Sequence[Picture]" = ()) -> str:
    """Return the HTML of the report."""
    rows = [row for row in figures["rows"] if row["refused"] is None]
    model = figures["model"]
    about, *notes = table.notes(figures)
    charts, maps, drawn = ["<p>No charts: matplotlib is not installed.</p>"], [], []
    if find_spec("matplotlib") is not None:
        from optimized.study.chart import papers

        charts, maps, drawn = pictures(rows, figures), heats(rows, figures), papers(shown)
    title = f"What compressing the cache of {model['name']} costs"
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=soft>{model['architecture']}, {model['parameters']:,} parameters, computed in "
        f"{model['dtype']}, cache held in {model['cache']}. {escape(about)}</p>",
        *summary(figures),
        "<h2>Quality against bytes</h2>",
        *charts,
        "<h2>Every row</h2>",
        rows_table(figures),
        *(f"<p class=soft>{escape(note)}</p>" for note in notes),
        *maps,
        *drawn,
        "<h2>How this was measured</h2>",
        *measured(figures),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        f'initial-scale=1"><title>{escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style>"
    )
    return (
        f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'
    )


def summary(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the HTML of the verdicts."""
    yield "<h2>Verdicts</h2>"
    if not figures["verdicts"]:
        yield "<p>No two measured systems can be compared.</p>"
        return
    needles = not figures["no_needles"]
    better = "fewer bits and more needles are" if needles else "fewer bits are"
    yield (
        f"<p>Differences on the same documents: {better} better. "
        f"{escape(table.describe_tests(figures))} Each 95 % interval is bootstrapped over "
        "documents for one comparison by itself; where all documents have the same difference in "
        "facts, it is Wilson's. It is left out where there are too few documents.</p>"
    )
    text = bool(figures["documents"]["continuation"])
    tests = [name for name, made in (("text", text), ("needles", needles)) if made]
    names = [*["bits per byte", "95 %"] * text, *["needles", "95 %"] * needles, "bytes %"]
    head = "<th></th><th>ratio</th><th class=words>verdict</th>"
    head += "".join(f"<th>{name}</th>" for name in names)
    claims = list(dict.fromkeys(verdict["claim"] for verdict in figures["verdicts"]))
    for claim in claims:
        of_claim = [verdict for verdict in figures["verdicts"] if verdict["claim"] == claim]
        counts = ", ".join(
            f"{what} in {sum(word in verdict['words'] for verdict in of_claim)}"
            for test in tests
            for what, word in ((f"{test} better", f"{test} better"), ("worse", f"{test} worse"))
        )
        lines, before = [], None
        for verdict in of_claim:
            pair = f"{verdict['system']} − {verdict['against']}"
            facts = sum(map(len, figures["documents"]["kinds"]))
            shown = verdict | {"needles": needles and table.widen(verdict["needles"], facts)}
            lines.append(verdict_table_row(shown, pair if pair != before else ""))
            before = pair
        said = f"{claim}: of {len(of_claim)} comparisons {counts}"
        yield details(said, html_table(lines, head), claim == claims[0])


def details(summary: str, body: str, opened: bool = False) -> str:
    """Return the HTML of what is shown at a click on its summary."""
    return f"<details{' open' if opened else ''}><summary>{summary}</summary>{body}</details>"


def html_table(lines: Sequence[str], head: str = "") -> str:
    """Return the HTML of a table of rows, which a narrow page scrolls."""
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<div class=wide><table>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def verdict_table_row(verdict: dict[str, Any], pair: str) -> str:
    """Return one comparison as a row of an HTML table."""
    ratio = "" if verdict["ratio"] is None else f"{verdict['ratio']:g}"
    signed = zip(("text", "needles"), verdict["signs"], strict=False)
    differs = [f"{name} {WORDS[sign]}" for name, sign in signed if sign in "+-"]
    words = ", ".join(differs) or WORDS[verdict["signs"].strip()[0]]
    for word in ("better", "worse"):
        words = words.replace(word, f"<span class={word}>{word}</span>")
    bits, needles = verdict["bits"], verdict["needles"]
    cells = [f"{bits[0]:+.4f}", table.between(bits, "+.4f")] if bits else []
    cells += [f"{needles[0]:+.1%}", table.between(needles, "+.1%")] if needles else []
    cells.append("{:.1f} / {:.1f}".format(*verdict["stored"]))
    first = " class=first" if pair else ""
    inner = "".join(f"<td>{cell}</td>" for cell in cells)
    inner = f"<td>{ratio}</td><td class=words>{words}</td>{inner}"
    return f"<tr{first}><td class=words>{escape(pair)}</td>{inner}</tr>"


def pictures(rows: Sequence[dict[str, Any]], figures: dict[str, Any]) -> Iterator[str]:
    """Yield the charts of text and needles against bytes."""
    from optimized.study import chart

    full = next(row for row in rows if row["system"] == "full")
    if figures["documents"]["continuation"]:
        yield chart.figure(
            chart.quality_against_bytes(
                chart.series(rows, "bits_change"), "bits per byte above the full cache", 0.0, False
            ),
            "Text after a compressed prompt: lower is better, and the line is the full "
            "cache. Dashed and hollow: refined.",
        )
    if not figures["no_needles"]:
        share, lines = full["needle_accuracy"], chart.series(rows, "needle_accuracy")
        yield chart.figure(
            chart.quality_against_bytes(lines, "needles found", share, True),
            "Facts found after the prompt was compressed without knowledge of the "
            "questions: higher is better, and the line is the full cache.",
        )


def rows_table(figures: dict[str, Any]) -> str:
    """Return the HTML table of all rows."""
    names = ["system", *(name for name, *_ in table.columns(figures))]
    head = "".join(f"<th>{name}</th>" for name in names)
    lines, before = [], None
    for row in figures["rows"]:
        name = escape(row["system"])
        first = " class=first" if name != before else ""
        if row["refused"] is not None:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:g}"
            reason = f"refused: {escape(row['refused'])}"
            rest = f"<td>{ratio}</td><td class=words colspan={len(names) - 2}>{reason}</td>"
        else:
            rest = "".join(f"<td>{cell}</td>" for cell in table.cells(row, figures))
        lines.append(f"<tr{first}><td>{name}</td>{rest}</tr>")
        before = name
    return html_table(lines, head)


def heats(rows: Sequence[dict[str, Any]], figures: dict[str, Any]) -> Iterator[str]:
    """Yield the tables of where each system finds needles, ratio by ratio."""
    from optimized.study import chart

    lengths = figures["documents"]["lengths"]
    needles = max(map(len, figures["documents"]["kinds"]))
    if figures["no_needles"] or figures["documents"]["own"]:
        return
    yield (
        "<h2>Where needles are found</h2>"
        "<p class=soft>A row for each length of documents in tokens, a column for each part of a "
        "document, first to last.</p>"
    )
    ratios = sorted({row["ratio"] for row in rows if row["ratio"] is not None})
    shown = min(ratios, key=lambda ratio: abs(ratio - 0.9), default=None)
    for ratio in (None, *ratios):
        chosen = [row for row in rows if row["ratio"] == ratio]
        name = "Full cache and quantisers" if ratio is None else f"Ratio {ratio:g}"
        maps = "".join(chart.heat(row, lengths, needles) for row in chosen)
        yield details(name, f"<div class=heats>{maps}</div>", ratio in (None, shown))


def measured(figures: dict[str, Any]) -> Iterator[str]:
    """Yield the description of the measurement, with settings and versions."""
    yield (
        "<p>Each document is read once, before the questions are known. Then each system "
        "compresses the cache. The text after the document gives the bits per byte. Questions "
        "about facts hidden in the document are answered greedily. The first queries after the "
        "prompt show, head by head, how far attention moves from that of the full cache. New "
        "tokens stay exact in every system. Bytes are counted from the stored tensors; the "
        "expander mask of HEX follows from a seed and is not counted. Unless it is set, the "
        "observation window of SnapKV, PyramidKV and CAKE has 32 tokens, or half the budget if "
        "that is less.</p>"
    )
    command = {name: value for name, value in figures["command"].items() if value is not None}
    items = [
        f"<tr><td>{escape(name)}</td><td class=words>{escape(str(value))}</td></tr>"
        for name, value in {**figures["versions"], **command}.items()
    ]
    yield details("Settings and versions", html_table(items))
