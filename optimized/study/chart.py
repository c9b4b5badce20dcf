"""Pictures of the report, as SVG by hand: quality against bytes, and where needles are found."""

from collections.abc import Iterator, Sequence
from html import escape
from math import log10
from typing import Any, NamedTuple

from optimized.models.scorers import SCORERS

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 460, 66, 46, 14, 16
LINE, LETTER = 13, 7
"""The room a line of text needs, and a letter in it."""

STORE = "#1f9d8f"


class Point(NamedTuple):
    """One row of the table in the picture."""

    x: float
    y: float
    words: str


class Series(NamedTuple):
    """The rows of one system, joined by a line."""

    name: str
    colour: str
    dashed: bool
    points: list[Point]


def series(rows: Sequence[dict[str, Any]], figure: str) -> list[Series]:
    """Return the lines of a picture of one figure against stored bytes."""
    found: dict[str, Series] = {}
    for row in rows:
        if row["refused"] is not None or row["system"] == "full" or row[figure] is None:
            continue
        name = row["system"]
        colour = STORE if row["store"] else SCORERS[row["scorer"]].colour
        line = found.setdefault(name, Series(name, colour, row["refinement"] is not None, []))
        ratio = "" if row["ratio"] is None else f" at {row['ratio']:g}"
        words = f"{name}{ratio}: {row['stored_percent']:.2f} % of the bytes, {row[figure]:.4g}"
        line.points.append(Point(row["stored_percent"], row[figure], words))
    return list(found.values())


def ticks(low: float, high: float) -> list[float]:
    """Return round numbers between two bounds."""
    span = max(high - low, 1e-12)
    step = 10.0 ** int(f"{span / 4:e}".partition("e")[2])
    step *= next(factor for factor in (1, 2, 5, 10) if span / (step * factor) <= 6)
    first = int(low / step) - (low < 0)
    return [step * n for n in range(first, first + 12) if low - 1e-9 <= step * n <= high + 1e-9]


def quality(lines: Sequence[Series], axis: str, level: float | None, percent: bool) -> str:
    """Draw a figure of every system against the bytes that are stored, on a logarithmic axis.

    Where nothing is stored, that is its left end.
    """
    points = [point for line in lines for point in line.points]
    if not points:
        return "<p>Nothing was measured.</p>"
    xs, ys = [point.x for point in points], [point.y for point in points]
    least, most = min([*(x for x in xs if x > 0), 50]) / 1.15, 100 * 1.05
    low, high = min([*ys, level or 0]), max([*ys, level or 0])
    pad = 0.05 * (high - low or 1)
    low, high = low - pad, high + pad
    named = [line for line in lines if not line.points[1:]]
    foot = max(HEIGHT - BOTTOM, TOP + LINE * len(named))  # a line for each name, if need be
    height = foot + BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        across = (log10(max(x, least)) - log10(least)) / (log10(most) - log10(least))
        up = (y - low) / (high - low)
        return LEFT + across * (WIDTH - LEFT - RIGHT), foot - up * (foot - TOP)

    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(axis)} against bytes">'
    ]
    for y in ticks(low, high):
        _, at = place(most, y)
        text = f"{y:.0%}" if percent else f"{y:+g}"
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{text}</text>'
        )
    for x in (1, 2, 5, 10, 20, 30, 50, 100):
        if x >= least:
            at, _ = place(x, low)
            parts.append(
                f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{foot}"/>'
                f'<text x="{at:.1f}" y="{foot + 18}" text-anchor="middle">{x} %</text>'
            )
    if level is not None:
        _, at = place(most, level)
        parts.append(
            f'<line class="full" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        )
    middle = (foot + TOP) / 2
    parts.append(
        f'<text x="{(LEFT + WIDTH) / 2}" y="{height - 6}" text-anchor="middle">stored bytes, in '
        "percent of the full cache</text>"
        f'<text transform="translate(14 {middle}) rotate(-90)" text-anchor="middle">{axis}</text>'
    )
    places = {line.name: [place(point.x, point.y) for point in line.points] for line in lines}
    parts += [drawn(line, places[line.name]) for line in lines]
    parts += names({line.name: places[line.name][0] for line in named}, foot)
    return "".join([*parts, "</svg>"])


def names(squares: dict[str, tuple[float, float]], foot: float) -> Iterator[str]:
    """Write the names of systems beside their squares, or as near as they cover no other name."""
    lines = [TOP + LINE * (step + 0.5) for step in range(int((foot - TOP) / LINE))]
    ends = dict.fromkeys(lines, 0.0)
    starts = {name: min(x + 8, WIDTH - LETTER * len(name)) for name, (x, _) in squares.items()}
    for name in sorted(squares, key=lambda name: (starts[name], squares[name][1])):
        x, (at, y) = starts[name], squares[name]
        line = min((line for line in lines if ends[line] <= x), key=lambda line: abs(line - y))
        ends[line] = x + LETTER * len(name)
        if abs(line - y) > LINE:
            yield f'<line class="grid" x1="{at:.1f}" y1="{y:.1f}" x2="{x:.1f}" y2="{line:.1f}"/>'
        yield f'<text x="{x:.1f}" y="{line + 4:.1f}">{escape(name)}</text>'


def drawn(line: Series, places: Sequence[tuple[float, float]]) -> str:
    """Draw one system: a line through its ratios, or a square where it has none."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    parts = [f'<polyline points="{path}" {stroke(line)}/>'] if places[1:] else []
    for (x, y), point in zip(places, line.points, strict=True):
        title = f"<title>{escape(point.words)}</title>"
        if places[1:]:
            fill = "var(--page)" if line.dashed else line.colour
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="{line.colour}">'
                f"{title}</circle>"
            )
        else:
            parts.append(
                f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" '
                f'fill="{line.colour}">{title}</rect>'
            )
    return "".join(parts)


def stroke(line: Series) -> str:
    """Return how a line looks."""
    dashes = ' stroke-dasharray="6 4"' if line.dashed else ""
    return f'stroke="{line.colour}"{dashes}'


def legend(lines: Sequence[Series]) -> str:
    """Name the lines."""
    items = (
        '<li><svg class="key" viewBox="0 0 34 12">'
        f'<polyline points="1,6 33,6" {stroke(line)}/></svg>{escape(line.name)}</li>'
        for line in lines
        if line.points[1:]
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def heat(row: dict[str, Any], lengths: Sequence[int], needles: int) -> str:
    """Draw where a system's needles are found: a line a length, a column a depth."""
    sizes = sorted(set(lengths))
    parts = ['<table class="heat"><caption>', escape(row["system"]), "</caption>"]
    for size in sizes:
        cells = []
        for depth in range(needles):
            hits = [
                found[depth]
                for found, length in zip(row["found_by_document"], lengths, strict=True)
                if length == size
            ]
            share = sum(hits) / len(hits)
            strong = " dark" if share > 0.55 else ""
            cells.append(f'<td class="hit{strong}" style="--share:{share:.3f}">{share:.0%}</td>')
        parts.append(f"<tr><th>{size}</th>{''.join(cells)}</tr>")
    parts.append("</table>")
    return "".join(parts)
