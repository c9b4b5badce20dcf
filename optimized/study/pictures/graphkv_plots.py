"""Draw the figures of GraphKV."""

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from optimized.study.pictures.drawing import ALIKE, INK, SCORE, STRONG, WEAK, image, title
from optimized.study.pictures.graphkv_keys import Likeness, Plane


def likeness(canvas: Figure, found: dict[str, Any], shown: Likeness) -> None:
    """Draw Fig. 2: three heat maps of similarities, and their distribution."""
    every, before, after, counts = canvas.subplots(
        1, 4, gridspec_kw={"width_ratios": [1, 1, 1, 1.2]}
    )
    parts = (
        (every, shown.every, f"(a) {len(shown.every)} tokens"),
        (before, shown.before, f"(b) best {len(shown.before)}"),
        (after, shown.after, f"(c) best {len(shown.after)} after"),
    )
    for axes, matrix, text in parts:
        image(axes, matrix, ALIKE, -1.0, 1.0)
        title(axes, text)
        axes.set_xticks([])
        axes.set_yticks([])
    canvas.colorbar(
        ScalarMappable(Normalize(-1, 1), ALIKE),
        ax=[every, before, after],
        location="bottom",
        shrink=0.5,
        label="cosine similarity",
    )
    edges = np.linspace(-1, 1, len(found["before"]["histogram"]) + 1)
    for name, colour, label in (
        ("every", INK, "all"),
        ("before", WEAK, "best before"),
        ("after", STRONG, "best after"),
    ):
        share = 100 * np.asarray(found[name]["histogram"])
        counts.stairs(share, edges, color=colour, label=label, linewidth=1.4)
    title(counts, "(d) distribution")
    counts.set(xlabel="cosine similarity", ylabel="percent of pairs", xlim=(-1, 1))
    counts.set_ylim(0, 1.5 * counts.get_ylim()[1])
    counts.legend(loc="upper left")


def planes(canvas: Figure, _: dict[str, Any], shown: Plane) -> None:
    """Draw Fig. 7: keys on two axes, scores as colours, the best keys as large dots."""
    places = shown.places.numpy()
    panels = canvas.subplots(1, len(shown.scores), sharex=True, sharey=True)
    first = shown.scores[0]
    for rounds, (axes, scores, best) in enumerate(
        zip(panels, shown.scores, shown.best, strict=True)
    ):
        colours = (scores / first.max().clamp(min=1e-12)).clamp(max=1).sqrt().numpy()
        how = {"cmap": SCORE, "vmin": 0.0, "vmax": 1.0, "linewidths": 0}
        axes.scatter(*places.T, c=colours, s=6, alpha=0.45, rasterized=True, **how)
        kept = best.numpy()
        axes.scatter(*places[kept].T, c=colours[kept], s=34, **(how | {"linewidths": 0.6}), ec=INK)
        title(axes, f"T = {rounds}")
        axes.set_xticks([])
        axes.set_yticks([])
    canvas.colorbar(
        ScalarMappable(Normalize(0, 1), SCORE),
        ax=list(panels),
        location="bottom",
        shrink=0.4,
        label="root of the score in units of the highest",
    )
