"""HEX, Fig. 3: what each setting costs."""

from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import optimized as kv
from optimized.models.systems import correct_hex
from optimized.study.pictures.caption_phrases import verdict
from optimized.study.pictures.captured import Captured
from optimized.study.pictures.drawing import STRONG, WEAK, title

DECODED = 0.25
"""Share of a document that is decoded token by token."""
CHANGES: dict[str, tuple[str, tuple[Any, ...]]] = {
    "append": ("block", (32, 48, 96, 192)),
    "full": ("block", (32, 48, 96, 192)),
    "bits": ("bits", (2, 3, 4, 8)),
    "heavy": ("heavy", (0.0, 0.02, 0.05, 0.1)),
    "recent": ("recent", (0, 8, 16, 32)),
    "density": ("density", (0.0, 0.03125, 0.0625, 0.125)),
}
NAMES = {
    "append": "block",
    "bits": "bits",
    "heavy": "heavy hitters",
    "recent": "recent window",
    "density": "density of the expander",
}
PANELS = (
    ("block size, and how it is recompressed", ("append", "full")),
    ("bits", ("bits",)),
    ("share of heavy hitters", ("heavy",)),
    ("recent window", ("recent",)),
    ("density of the expander", ("density",)),
)


def settings(caught: Captured, reading: str) -> dict[str, Any]:
    """Stream a document through HEX-4 with one setting changed at a time.

    Returns:
        For each sweep its values, and for each value the relative deviation of attention and the
        bytes in percent. For a refused value: the reason.
    """
    queries, keys, values = (
        part[:, :1].half() for part in (caught.queries, caught.keys, caught.values)
    )
    stream, tokens = (queries, keys, values), keys.shape[-2]
    prompt = tokens - max(1, round(DECODED * tokens))
    base = kv.hex_preset("HEX-4")._replace(near=True)
    if prompt < base.block + base.recent:
        raise ValueError(
            f"three quarters of a document must fill a block of {base.block} tokens and a window "
            f"of {base.recent}, got {prompt}"
        )
    size = mean_output_norm(*stream, prompt)
    known: dict[kv.HexConfig, Any] = {}
    sweeps: dict[str, Any] = {}
    for name, (field, choices) in CHANGES.items():
        mode = "full" if name == "full" else "append"
        configs = [
            correct_hex(base._replace(mode=mode, **{field: value}), reading) for value in choices
        ]
        for config in configs:
            if config not in known:
                known[config] = streamed(stream, prompt, config, size)
        rows = [known[config] for config in configs]
        sweeps[name] = {"setting": field, "values": list(choices), "rows": rows}
    return {"prompt": prompt, "decoded": tokens - prompt, "sweeps": sweeps}


def streamed(
    stream: tuple[Tensor, Tensor, Tensor], prompt: int, config: kv.HexConfig, size: float
) -> tuple[float, float] | str:
    """Return the deviation and the bytes of one setting, or the reason why it is refused."""
    try:
        (row,) = kv.sensitivity(*stream, prompt, [config])
    except ValueError as refusal:
        return " ".join(str(refusal).split())
    return float(row.error) / size, row.percent


def mean_output_norm(
    queries: Float[Tensor, "*batch query_heads tokens width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    prompt: int,
) -> float:
    """Return the mean norm of the attention outputs after a prompt."""
    return float(kv.attention(queries[..., prompt:, :], keys, values).float().norm(dim=-1).mean())


def settings_caption(found: dict[str, Any]) -> str:
    """Return the caption of the sweeps."""
    sweeps = found["sweeps"]
    parts = []
    for name, words in NAMES.items():
        rows = [row[0] for row in sweeps[name]["rows"] if not isinstance(row, str)]
        if rows:
            parts.append(f"{words} {rows[0]:.1%} to {rows[-1]:.1%}")
    pairs = [
        (one[0], other[0])
        for one, other in zip(sweeps["append"]["rows"], sweeps["full"]["rows"], strict=True)
        if not isinstance(one, str) and not isinstance(other, str)
    ]
    said = (
        f"HEX-4 with one setting changed at a time: how far attention moves at "
        f"{found['decoded']} decoded tokens after {found['prompt']}, in percent of its length; "
        f"beside the points, the bytes. From the smallest value to the largest: {', '.join(parts)}."
    )
    if pairs:
        most = max(abs(other - one) / one for one, other in pairs if one)
        said += (
            f" Recompressing in full differs from appending by up to {most:.0%} of the error; the "
            f"paper finds them nearly indistinguishable: {verdict(most <= 0.1, most <= 0.25)}."
        )
    return said


def draw_settings(canvas: Figure, found: dict[str, Any]) -> None:
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
