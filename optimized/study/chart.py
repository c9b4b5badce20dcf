"""Pictures of the report: quality against bytes, and where needles are found."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from optimized.models.scorers import SCORERS
from optimized.study.pictures.drawing import GRID, INK, PAGE, draw

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 860, 460, 66, 46, 14, 16
"""In pixels, a hundredth of an inch each."""
LINE, LETTER = 13, 7
"""The room a line of text needs, and a letter in it."""
NAMES, DOTS = 4, 100
"""Names of lines side by side below the picture, and pixels of an inch."""
STORE = "#1f9d8f"


class Series(NamedTuple):
    """The rows of one system, joined by a line."""

    name: str
    colour: str
    refined: bool
    points: list[tuple[float, float]]


def series(rows: Sequence[dict[str, Any]], figure: str) -> list[Series]:
    """Return the lines of a picture of one figure against stored bytes."""
    found: dict[str, Series] = {}
    for row in rows:
        if row["refused"] is not None or row["system"] == "full" or row[figure] is None:
            continue
        name = row["system"]
        colour = STORE if row["store"] else SCORERS[row["scorer"]].colour
        line = found.setdefault(name, Series(name, colour, row["refinement"] is not None, []))
        line.points.append((row["stored_percent"], row[figure]))
    return list(found.values())


def quality(lines: Sequence[Series], axis: str, level: float, percent: bool) -> str | None:
    """Draw a figure of every system against the bytes that are stored, on a logarithmic axis.

    Where nothing is stored, that is its left end. Where nothing was measured, there is no picture.
    """
    if not lines:
        return None
    joined = [line for line in lines if line.points[1:]]
    named = [line for line in lines if not line.points[1:]]
    inner = max(HEIGHT - BOTTOM - TOP, LINE * len(named))  # a line for each name, if need be
    below = LINE * (1 + 1.6 * -(-len(joined) // NAMES))

    def paint(canvas: Figure) -> None:
        width, height = canvas.get_size_inches() * DOTS
        foot, across = (below + BOTTOM) / height, (WIDTH - LEFT - RIGHT) / width
        axes = canvas.add_axes((LEFT / width, foot, across, inner / height))
        bounds(axes, lines, level)
        axes.set(xlabel="stored bytes, in percent of the full cache", ylabel=axis)
        axes.yaxis.set_major_formatter(
            FuncFormatter(lambda y, _: f"{y:.0%}" if percent else f"{y:+g}")
        )
        axes.axhline(level, color=INK, linewidth=1.5)
        least = axes.get_xlim()[0]
        for line in lines:
            xs, ys = zip(*((max(x, least), y) for x, y in line.points), strict=True)
            style = "s" if line in named else "o--" if line.refined else "o-"
            fill = "none" if line in joined and line.refined else line.colour
            axes.plot(
                xs,
                ys,
                style,
                color=line.colour,
                mfc=fill,
                label=line.name,
                clip_on=False,
                zorder=6 if line in named else 2,
            )
        if joined:
            handles = [
                one for one in axes.get_lines() if one.get_label() in {s.name for s in joined}
            ]
            canvas.legend(handles=handles, loc="lower left", ncols=NAMES)
        squares = {}
        for line in named:
            x, y = line.points[0]
            across, up = axes.transAxes.inverted().transform(
                axes.transData.transform((max(x, least), y))
            )
            squares[line.name] = (across * (WIDTH - LEFT - RIGHT), (1 - up) * inner)
        for name, at, text in names(squares, inner):
            led = {"arrowstyle": "-", "color": GRID, "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 0}
            axes.annotate(
                name,
                (at[0] / (WIDTH - LEFT - RIGHT), 1 - at[1] / inner),
                (text[0] / (WIDTH - LEFT - RIGHT), 1 - text[1] / inner),
                xycoords="axes fraction",
                va="center",
                fontsize=8,
                arrowprops=led if abs(at[1] - text[1]) > LINE else None,
                bbox={"facecolor": PAGE, "edgecolor": "none", "alpha": 0.7, "pad": 0.5},
                zorder=5,
            )

    return draw(paint, (inner + TOP + BOTTOM + below) / DOTS, WIDTH / DOTS, layout=None)


def bounds(axes: Axes, lines: Sequence[Series], level: float) -> None:
    """Set the axes so that all points and the level of the full cache are within them."""
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


def names(
    squares: dict[str, tuple[float, float]], height: float
) -> Iterator[tuple[str, tuple[float, float], tuple[float, float]]]:
    """Place the names of systems beside their squares, or as near as they cover no other name.

    Args:
        squares: where each system's square is, in pixels from the left and from the top.
        height: of the picture.

    Yields:
        Each name with its square, and where its text starts.
    """
    lines = [LINE * (step + 0.5) for step in range(int(height / LINE))]
    ends = dict.fromkeys(lines, 0.0)
    most = WIDTH - LEFT
    starts = {name: min(x + 8, most - LETTER * len(name)) for name, (x, _) in squares.items()}
    for name in sorted(squares, key=lambda name: (starts[name], squares[name][1])):
        x, at = starts[name], squares[name]
        line = min((line for line in lines if ends[line] <= x), key=lambda line: abs(line - at[1]))
        ends[line] = x + LETTER * len(name)
        yield name, at, (x, line)


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
