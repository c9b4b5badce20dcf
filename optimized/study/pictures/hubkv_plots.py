"""Draw the figures of HubKV."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from optimized.study.pictures.drawing import HEAT, INK, STRONG, THIRD, WEAK, image, title
from optimized.study.pictures.hubkv_attention_columns import Map

SMOOTH = 5
ORDERS = (("top", "Top-K", WEAK, "-"), ("nms", "neighbours suppressed", STRONG, "-"))
RANDOM = ("random", "random order", INK, "--")


def clusters(canvas: Figure, found: dict[str, Any]) -> None:
    """Draw Fig. 1: gain of each pick, autocorrelation, coverage."""
    gain, correlated, covered = canvas.subplots(1, 3)
    for name, label, colour, style in (ORDERS[0], RANDOM):
        values = np.asarray(found["gain"][name])
        at = np.arange(1, len(values) + 1)
        size = np.convolve(np.ones_like(values), np.ones(SMOOTH), "same")
        smooth = np.convolve(values, np.ones(SMOOTH), "same") / size
        gain.plot(at, values, ".", color=colour, markersize=3, alpha=0.6)
        gain.plot(at, smooth, style, color=colour, label=label)
    title(gain, "(a) segments gained")
    gain.set(xlabel="pick", ylabel="new segments a pick", ylim=(0, 1.05))
    autocorrelation(correlated, found["autocorrelation"], found["autocorrelation_deviation"])
    title(correlated, "(b) autocorrelation of scores")
    even = ("even", "evenly spread", THIRD, ":")
    for name, label, colour, style in (*ORDERS, RANDOM, even):
        values = [100 * value for value in found["coverage"][name]]
        covered.plot(range(1, len(values) + 1), values, style, color=colour, label=label)
    title(covered, "(c) segments covered")
    covered.set(xlabel="picks", ylabel="percent of the segments", ylim=(0, 105))
    canvas.legend(handles=covered.get_lines(), loc="outside lower center", ncols=4)


def autocorrelation(
    axes: Axes, values: Sequence[float], deviation: Sequence[float], label: str = "mean ± deviation"
) -> None:
    """Draw an autocorrelation with its deviation, from distance 1 on."""
    mean, spread = np.asarray(values)[1:], np.asarray(deviation)[1:]
    at = np.arange(1, len(values))
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.fill_between(at, mean - spread, mean + spread, color=STRONG, alpha=0.2, linewidth=0)
    axes.plot(at, mean, color=STRONG, label=label)
    axes.set(xlabel="distance in tokens", ylabel="autocorrelation R(d)")
    axes.set_ylim(min(-0.25, float((mean - spread).min())), 1.05)
    axes.legend(loc="upper right")


def columns(canvas: Figure, _: dict[str, Any], maps: Sequence[Map]) -> None:
    """Draw Fig. 2: attention of the heads with the strongest columns."""
    for axes, one in zip(np.ravel(canvas.subplots(1, len(maps))), maps, strict=True):
        bright = one.weights**0.4  # makes the background visible beside the columns
        image(axes, bright, HEAT, 0.0, max(1e-6, float(bright.max())))
        title(axes, f"layer {one.layer}, head {one.head}")
        last = len(one.weights) - 1
        axes.set_xticks([0, last], [str(one.first), str(one.last)])
        axes.set_yticks([0, last], [str(one.first), str(one.last)])
        axes.set(xlabel="key", ylabel="query")


def density_autocorrelation(canvas: Figure, found: dict[str, Any]) -> None:
    """Draw Fig. 9: the autocorrelation of the attention that keys receive."""
    axes = canvas.subplots()
    autocorrelation(axes, found["heads"], found["heads_deviation"], "a head, mean ± deviation")
    at = range(1, len(found["mean"]))
    axes.plot(at, found["mean"][1:], color=WEAK, label="mean of all heads")
    axes.plot(at, found["even"][1:], ":", color=INK, label="equal attention to all keys")
    axes.legend(loc="upper right")
