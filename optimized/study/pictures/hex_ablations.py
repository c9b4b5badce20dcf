"""HEX, Table 4: ablations of the expander, of heavy hitters, and of both."""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from matplotlib.figure import Figure
from transformers import PreTrainedModel

import optimized as kv
from optimized.models.systems import FULL, System
from optimized.study.documents import Document
from optimized.study.evaluate import evaluate
from optimized.study.measurements import MeasurementSettings, Trial
from optimized.study.pictures.caption_phrases import verdict
from optimized.study.pictures.drawing import INK, STRONG
from optimized.study.significance import differences, interval, needle_shares
from optimized.study.table import between

PRINTED = {
    "3-full": 55.42,
    "3-H2O": 53.82,
    "3-expander": 34.95,
    "3-quant": 32.60,
    "4-full": 54.66,
    "4-H2O": 53.98,
    "4-H2O-EO": 53.53,
    "4-quant": 51.78,
    "4-expander": 50.76,
    "4-expander-EO": 50.64,
}
"""Printed accuracies on GSM8k, best first."""


def ablations(
    model: PreTrainedModel, documents: Sequence[Document], settings: MeasurementSettings
) -> dict[str, Any]:
    """Measure the rows of the table like the systems of a run.

    Returns:
        For each row: the bytes in percent, the relative deviation of attention, the change in bits
        per byte with its interval, and the needles found. For a refused row: the reason.
    """
    trials = [Trial(FULL, None)]
    for name in PRINTED:
        config = kv.hex_preset(f"Table4-{name}")
        trials.append(Trial(System(name, "h2o", store="hex", settings=config), None))
    full, *rows = evaluate(model, documents, trials, settings._replace(kv=kv, other=None))
    measured: dict[str, Any] = {}
    for name, row in zip(PRINTED, rows, strict=True):
        if row.refused is not None:
            measured[name] = row.refused
            continue
        change = differences(row.bits, full.bits)
        found = needle_shares(row)
        measured[name] = {
            "percent": 100 * row.nbytes / full.nbytes,
            "deviation": sum(row.relative) / len(row.relative),
            "bits": list(interval(change, settings.seed)),
            "needles": sum(found) / len(found) if found else None,
        }
    return {"documents": len(documents), "rows": measured}


def ablations_caption(found: dict[str, Any]) -> str:
    """Return the caption of the ablations."""
    rows = {name: row for name, row in found["rows"].items() if not isinstance(row, str)}
    words = [
        f"Rows of Table 4 on {found['documents']} documents: how far attention moves, in percent "
        "of its length; behind the bars the bytes, the change in bits per byte with its 95 % "
        "interval, and the accuracy that the paper prints."
    ]
    for bits in ("3", "4"):
        some = {name: row["deviation"] for name, row in rows.items() if name.startswith(bits)}
        if len(some) > 2:
            words.append(ranked(bits, some))
    refused = len(found["rows"]) - len(rows)
    if refused:
        words.append(f"{refused} rows are refused for this cache.")
    return " ".join(words)


def ranked(bits: str, some: dict[str, float]) -> str:
    """Return a sentence on the order of the rows of one bit width, compared with the paper's."""
    order = sorted(some, key=lambda name: some[name])
    listed = ", ".join(f"{name.partition('-')[2]} {some[name]:.1%}" for name in order)
    pairs = [(PRINTED[one] > PRINTED[other]) for one, other in combinations(order, 2)]
    alike = sum(pairs) / len(pairs)
    return (
        f"With {bits} bits, closest first: {listed}. Of {len(pairs)} pairs of rows {sum(pairs)} "
        f"are in the order of the printed accuracies: {verdict(alike == 1, alike >= 2 / 3)}."
    )


def draw_ablations(canvas: Figure, found: dict[str, Any]) -> None:
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
