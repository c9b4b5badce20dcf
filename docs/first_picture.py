"""Draw the picture of README.md and docs/index.md: `python docs/first_picture.py`.

It shows a few rows of docs/shipped/words/remedied.json, the run that docs/small_model.md is about.
Unlike the other figures it is committed, as docs/first_picture.svg, since README.md is read without
a build.
"""

import json

import matplotlib.pyplot as plt
from drawing import BLUE, DOCS, INK, STRONG, WEAK, svg_of

from optimized._atomic_files import write_atomically

PICTURE = DOCS / "first_picture.svg"
RUN = DOCS / "shipped" / "words" / "remedied.json"
LINES = (
    # system, words, colour, style of its line, marker, place of the words in points
    ("kvzip", "KVzip", INK, "-", "o", (10, -7, "left")),
    ("kvzip+hubkv", "KVzip + HubKV", STRONG, "--", "o", (9, -4, "left")),
    ("snapkv", "SnapKV", INK, "-", "s", (8, -8, "left")),
    ("snapkv+graphkv", "SnapKV + GraphKV, remedied", WEAK, "--", "s", (-8, 4, "right")),
    ("random", "random choice", INK, ":", "", (-8, 6, "right")),
    ("hex-3", "HEX-3", BLUE, "", "D", (-6, -14, "right")),
    ("hex-4", "HEX-4", BLUE, "", "D", (6, -14, "left")),
)
NAMED = {"kvzip": 0.95, "kvzip+hubkv": 0.95, "random": 0.75}
"""The ratio whose point the words of a line stand beside, where it is not 0.5."""


def drawing() -> str:
    """Return the picture as SVG."""
    rows = json.loads(RUN.read_text())["rows"]
    canvas, axes = plt.subplots(figsize=(7.2, 3.7), layout="constrained")
    full = rows[0]["needle_accuracy"]
    axes.axhline(full, color=INK, linewidth=1)
    axes.annotate("full cache", (100, full), (0, -12), textcoords="offset points", ha="right")
    for system, words, colour, style, marker, (right, up, side) in LINES:
        some = [row for row in rows if row["system"] == system]
        points = {row["ratio"]: (row["stored_percent"], row["needle_accuracy"]) for row in some}
        axes.plot(
            *zip(*points.values(), strict=True),
            linestyle=style or "none",
            marker=marker,
            color=colour,
            markersize=8 if style == "--" else 5,
            markerfacecolor="none" if style == "--" else colour,
        )
        at = points[None] if None in points else points[NAMED.get(system, 0.5)]
        axes.annotate(
            words, at, (right, up), textcoords="offset points", ha=side, color=colour, weight="bold"
        )
    ticks = (5, 10, 25, 50, 100)
    axes.set(xscale="log", xlim=(4.5, 104), ylim=(0, 1.04))
    axes.set(xlabel="bytes of the cache, in percent of the full one", ylabel="hidden facts found")
    axes.set_xticks(ticks, [f"{tick} %" for tick in ticks], minor=False)
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter("{x:.0%}")
    return svg_of(canvas)


if __name__ == "__main__":
    write_atomically(PICTURE, drawing())
