"""The style of pictures: reproducible SVG, legible on white and on near-black pages."""

from collections.abc import Callable
from io import StringIO
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from torch import Tensor

LOOK = Path(__file__).parent / "figure.mplstyle"
INK: str = mpl.rc_params_from_file(LOOK, use_default_template=False)["text.color"]
STRONG, WEAK, THIRD = "#00897b", "#e07b39", "#5b7fd6"
GRID, PAGE = "#8a929833", "#fefefe"
"""Colour of grid lines, and of the background of letters."""
HEAT = "magma"
PIXELS = 384
ALIKE = LinearSegmentedColormap.from_list("alike", ["#2f6fd0", "#f2f2ef", "#d0452f"])
"""Colours of similarities: opposite, unrelated, alike."""
SCORE = LinearSegmentedColormap.from_list("score", ["#7ec8f0", "#d0302f"])
"""Sky blue to red, as in GraphKV's figure."""


def draw(paint: Callable[[Figure], None], height: float, width: float = 9.0) -> str:
    """Return a picture as an SVG element, without an XML declaration.

    Args:
        paint: a function that draws on the figure.
        height: in inches.
        width: in inches.
    """
    with mpl.rc_context(fname=LOOK):
        canvas = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(canvas)
        paint(canvas)
        file = StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(file, format="svg", metadata=nothing)
    text = file.getvalue()
    return text[text.index("<svg") :]


def title(axes: Axes, text: str) -> None:
    """Set the title of a part of a figure."""
    axes.set_title(text, loc="left")


def image(
    axes: Axes, values: Tensor, colours: str | LinearSegmentedColormap, low: float, high: float
) -> None:
    """Draw a matrix with several pixels for each entry, so that viewers blur it little."""
    axes.spines[:].set_visible(False)
    times = max(1, round(PIXELS / len(values)))
    array: np.ndarray = values.float().numpy().repeat(times, 0).repeat(times, 1)
    axes.imshow(
        array,
        cmap=colours,
        vmin=low,
        vmax=high,
        interpolation="none",
        extent=(-0.5, values.shape[1] - 0.5, len(values) - 0.5, -0.5),
    )
