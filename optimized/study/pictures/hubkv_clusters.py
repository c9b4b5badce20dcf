"""HubKV, Fig. 1: important tokens form clusters, and suppressing neighbours spreads the picks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import optimized as kv
from optimized.study.pictures.caption_phrases import share, verdict
from optimized.study.pictures.drawing import INK, STRONG, THIRD, WEAK, title

PICKS, SEGMENTS, DISTANCES, FIRST = 80, 64, 150, 4
SMOOTH = 5
ORDERS = (("top", "Top-K", WEAK, "-"), ("nms", "neighbours suppressed", STRONG, "-"))
RANDOM = ("random", "random order", INK, "--")


def clustering_figures(scores: Float[Tensor, "documents tokens"], seed: int) -> dict[str, Any]:
    """Return the measurements of the three observations.

    Args:
        scores: KVzip's scores of the content, mean over layers and heads.
        seed: seed of the random orders that ranking is compared with.

    Returns:
        The gain of each pick and the coverage after it, for Top-K, suppressed scores and a random
        order: means over documents. The autocorrelation with its deviation.
    """
    documents, tokens = scores.shape
    picks, segments = min(PICKS, tokens // 2), min(SEGMENTS, tokens // 4)
    orders = {
        "top": kv.ranking(scores),
        "nms": kv.ranking(kv.nms(scores)),
        "random": torch.stack([kv.random_order(tokens, seed + n) for n in range(documents)]),
    }
    gains = {
        name: kv.segment_coverage(order[:, :picks], tokens, segments).mean(0)
        for name, order in orders.items()
    }
    evenly = (kv.uniform_spread(tokens, count) for count in range(1, picks + 1))
    correlation = kv.autocorrelation(scores, min(DISTANCES, tokens // 2))
    return {
        "documents": documents,
        "tokens": tokens,
        "segments": segments,
        "gain": {name: (gain * segments).tolist() for name, gain in gains.items()},
        "coverage": {name: gain.cumsum(0).tolist() for name, gain in gains.items()}
        | {"even": [float(kv.segment_coverage(o, tokens, segments).sum()) for o in evenly]},
        "autocorrelation": correlation.mean(0).tolist(),
        "autocorrelation_deviation": deviation(correlation).tolist(),
    }


def deviation(values: Float[Tensor, "samples points"]) -> Float[Tensor, " points"]:
    """Return the sample standard deviation of each point, 0 where there is one sample."""
    return values.std(0) if len(values) > 1 else torch.zeros_like(values[0])


def caption(found: dict[str, Any]) -> str:
    """Return the caption of the three observations."""
    gain, covered = found["gain"], found["coverage"]
    picks, one = len(gain["top"]), found["autocorrelation"][1]
    parts = gain["top"][:FIRST], gain["top"][FIRST:]
    early, late = (sum(part) / len(part) for part in parts)
    top, nms, random = (covered[name][-1] for name in ("top", "nms", "random"))
    drops = late < early and top < 0.9 * random
    return (
        f"KVzip's scores of {found['documents']} documents, {found['tokens']} tokens of content "
        f"each, cut into {found['segments']} segments. (a) Of the first {FIRST} tokens that Top-K "
        f"picks, {share(early)} are the first of their segment, of those after them {share(late)}; "
        f"{picks} picks cover {share(top)} of the segments, those of a random order "
        f"{share(random)}. The paper sees the gain drop after about 4 picks, because picks crowd "
        f"together: {verdict(drops, top < 0.97 * random)}. "
        f"(b) The autocorrelation at distance 1 is {one:.2f}, "
        f"where the paper has about 0.87: {verdict(one >= 0.5)}. "
        f"(c) {picks} picks cover {share(top)} of the segments with Top-K, {share(nms)} with "
        f"suppressed neighbours, {nms / top:.2f} times as much; the paper has about 2.6 times: "
        f"{verdict(nms / top >= 1.5, nms > top)}."
    )


def clusters(canvas: Figure, found: dict[str, Any]) -> None:
    """Draw Fig. 1: gain of each pick, autocorrelation, coverage."""
    gain, correlated, covered = canvas.subplots(1, 3)
    for name, label, colour, style in (ORDERS[0], RANDOM):
        values = np.asarray(found["gain"][name])
        picks = np.arange(1, len(values) + 1)
        size = np.convolve(np.ones_like(values), np.ones(SMOOTH), "same")
        smooth = np.convolve(values, np.ones(SMOOTH), "same") / size
        gain.plot(picks, values, ".", color=colour, markersize=3, alpha=0.6)
        gain.plot(picks, smooth, style, color=colour, label=label)
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
    distances = np.arange(1, len(values))
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.fill_between(distances, mean - spread, mean + spread, color=STRONG, alpha=0.2, linewidth=0)
    axes.plot(distances, mean, color=STRONG, label=label)
    axes.set(xlabel="distance in tokens", ylabel="autocorrelation R(d)")
    axes.set_ylim(min(-0.25, float((mean - spread).min())), 1.05)
    axes.legend(loc="upper right")
