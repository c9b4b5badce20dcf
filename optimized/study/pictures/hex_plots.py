"""Draw the figures of HEX."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optimized.study.pictures.drawing import INK, STRONG, WEAK, title
from optimized.study.pictures.hex_ablations import PRINTED
from optimized.study.table import between

PANELS = (
    ("block size, and how it is recompressed", ("append", "full")),
    ("bits", ("bits",)),
    ("share of heavy hitters", ("heavy",)),
    ("recent window", ("recent",)),
    ("density of the expander", ("density",)),
)


def settings(canvas: Figure, found: dict[str, Any]) -> None:
    """Draw Fig. 3: the deviation of attention for each value of each setting."""
    *panels, rest = canvas.subplots(2, 3).flat
    rest.set_axis_off()
    rest.text(
        0.0, 0.6, "beside each point:\nbytes in percent of\nthe full cache in\n16 bits", va="center"
    )
    for axes, (text, names) in zip(panels, PANELS, strict=True):
        for name, colour, style in zip(names, (STRONG, WEAK), ("o-", "s--"), strict=False):
            line(axes, found["sweeps"][name], name, colour, style)
        title(axes, text)
        axes.set_ylim(0, axes.get_ylim()[1] * 1.15)
        axes.margins(x=0.15)
        axes.set_ylabel("attention moves, %")
        if names[1:]:
            axes.legend(loc="lower left")


def line(axes: Axes, sweep: dict[str, Any], name: str, colour: str, style: str) -> None:
    """Draw the sweep of one setting, with its values at equal distances."""
    values = [f"{value:.3g}" for value in sweep["values"]]
    rows = [(None, None) if isinstance(row, str) else row for row in sweep["rows"]]
    heights = [np.nan if row[0] is None else 100 * row[0] for row in rows]
    at = np.arange(len(values))
    axes.plot(at, heights, style, color=colour, label=name, markersize=5)
    axes.set_xticks(at, values)
    for place, height, (_, percent) in zip(at, heights, rows, strict=True):
        if percent is not None and name != "full":
            axes.annotate(
                f"{percent:.0f}",
                (float(place), height),
                xytext=(0, -14 if height > np.nanmax(heights) / 2 else 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )


def ablations(canvas: Figure, found: dict[str, Any]) -> None:
    """Draw Table 4: a bar for each row, with its bytes, bits and printed accuracy."""
    axes = canvas.subplots()
    rows = list(found["rows"].items())
    widths = [0.0 if isinstance(row, str) else 100 * row["deviation"] for _, row in rows]
    colours = [STRONG if name.endswith("full") else INK for name, _ in rows]
    axes.barh(range(len(rows)), widths, color=colours, alpha=0.8, height=0.65)
    names = [name.replace("-", " bits, ", 1).replace("-EO", " EO") for name, _ in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    for place, ((name, row), width) in enumerate(zip(rows, widths, strict=True)):
        words = "refused"
        if not isinstance(row, str):
            bits, bounds = row["bits"][0], between(row["bits"], "+.3f")
            words = (
                f"{row['percent']:.1f} % of bytes, {bits:+.3f} bits"
                f"{f' ({bounds})' if bounds else ''}, paper {PRINTED[name]:.2f}"
            )
        axes.annotate(
            words, (width, place), xytext=(5, 0), textcoords="offset points", va="center", size=9
        )
    axes.set(xlabel="attention moves, in percent of its length")
    axes.set_xlim(0, 2.2 * max([*widths, 1e-6]))
