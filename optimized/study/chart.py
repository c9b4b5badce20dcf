"""Pictures of the report: quality against bytes, found needles, and the papers' figures."""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from itertools import cycle
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from optimized.models.scorers import SCORERS
from optimized.study.pictures import Picture
from optimized.study.pictures.drawing import GRID, INK, PAGE, draw

WIDTH, HEIGHT, LINE, NAMES = 8.6, 4.6, 0.2, 3
"""Size of a chart and height of a legend line, in inches; number of legend columns."""
MARKS = "osDv^<>PX*ph"
"""Markers that distinguish systems of one colour."""
STORE = "#1f9d8f"
# An SVG in an `img` has no access to the page's colours, but knows the light or dark scheme.
THEMED = (
    "<style>svg { --ink: #4b5563; --page: #ffffff; } "
    "@media (prefers-color-scheme: dark) { svg { --ink: #aeb7c4; --page: #14171d; } }</style>"
)


class Series(NamedTuple):
    """The points of one system, joined by a line."""

    name: str
    colour: str
    refined: bool
    points: list[tuple[float, float]]


def series(rows: Sequence[dict[str, Any]], figure: str) -> list[Series]:
    """Return one line for each system: a figure against stored bytes."""
    found: dict[str, Series] = {}
    for row in rows:
        if row["refused"] is not None or row["system"] == "full" or row[figure] is None:
            continue
        name = row["system"]
        colour = STORE if row["store"] else SCORERS[row["scorer"]].colour
        line = found.setdefault(name, Series(name, colour, row["refinement"] is not None, []))
        line.points.append((row["stored_percent"], row[figure]))
    return list(found.values())


def quality_against_bytes(
    lines: Sequence[Series], axis: str, level: float, percent: bool
) -> str | None:
    """Return a chart of a figure of every system against stored bytes, on a logarithmic axis.

    Points with no stored bytes are at the left end. Returns None where nothing was measured.
    """
    if not lines:
        return None

    def paint(canvas: Figure) -> None:
        axes = canvas.add_subplot()
        bounds(axes, lines, level)
        axes.set(xlabel="stored bytes, in percent of the full cache", ylabel=axis)
        axes.yaxis.set_major_formatter("{x:.0%}" if percent else "{x:+g}")
        axes.axhline(level, color=INK, linewidth=1.5)
        least = axes.get_xlim()[0]
        marks = {line.colour: cycle(MARKS) for line in lines}
        for line in lines:
            xs, ys = zip(*((max(x, least), y) for x, y in line.points), strict=True)
            axes.plot(
                xs,
                ys,
                linestyle=("--" if line.refined else "-") if line.points[1:] else "none",
                marker=next(marks[line.colour]),
                ms=8 if line.refined else 6,  # larger than a marker at the same point
                color=line.colour,
                mfc="none" if line.refined else line.colour,
                label=line.name,
                clip_on=False,
            )
        canvas.legend(loc="outside lower left", ncols=NAMES)

    return draw(paint, HEIGHT + LINE * -(-len(lines) // NAMES), WIDTH)


def bounds(axes: Axes, lines: Sequence[Series], level: float) -> None:
    """Set the limits of the axes to include all points and the level of the full cache."""
    xs, ys = zip(*(point for line in lines for point in line.points), strict=True)
    low, high = min(*ys, level), max(*ys, level)
    pad = 0.05 * (high - low or 1)
    least = min([*(x for x in xs if x > 0), 50]) / 1.15
    axes.set(xscale="log", xlim=(least, 105), ylim=(low - pad, high + pad))
    shown = [x for x in (1, 2, 5, 10, 20, 30, 50, 100) if x >= least]
    axes.set_xticks(shown, [f"{x} %" for x in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def heat(row: dict[str, Any], lengths: Sequence[int], needles: int) -> str:
    """Return an HTML table of found needles: a row for each length, a column for each depth."""
    sizes = sorted(set(lengths))
    parts = ['<table class="heat"><caption>', escape(row["system"]), "</caption>"]
    for size in sizes:
        cells = []
        for depth in range(needles):
            hits = [
                found[depth]
                for found, length in zip(row["found_by_document"], lengths, strict=True)
                if length == size and depth < len(found)
            ]
            share = sum(hits) / max(1, len(hits))
            strong = " dark" if share > 0.55 else ""
            cells.append(f'<td class="hit{strong}" style="--share:{share:.3f}">{share:.0%}</td>')
        parts.append(f"<tr><th>{size}</th>{''.join(cells)}</tr>")
    parts.append("</table>")
    return "".join(parts)


def papers(shown: Sequence[Picture]) -> Iterator[str]:
    """Yield the HTML of the papers' figures, drawn from the model."""
    if shown:
        yield "<h2>The papers' figures, drawn from this model</h2>"
    for one in shown:
        yield f"<h3>{escape(one.title)}</h3>"
        if one.svg is None:
            yield f"<p class=soft>Not drawn: {escape(one.refused or '')}</p>"
            continue
        yield figure(one.svg, one.caption, one.title)


def figure(svg: str | None, caption: str, title: str = "") -> str:
    """Return the HTML of a picture above its caption."""
    if svg is None:
        return "<p>Nothing was measured.</p>"
    title = title or caption.partition(":")[0]
    return (
        f'<figure><div class=wide><img src="{svg_data_url(svg)}" alt="{escape(title)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def svg_data_url(svg: str) -> str:
    """Return a data URL of a picture whose greys fit light and dark pages."""
    themed = (
        svg.replace(">", f">{THEMED}", 1).replace(INK, "var(--ink)").replace(PAGE, "var(--page)")
    )
    return f"data:image/svg+xml;base64,{b64encode(themed.encode()).decode()}"
