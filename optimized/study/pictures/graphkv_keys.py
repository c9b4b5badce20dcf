"""GraphKV, Figs. 2 and 7: similarity and location of the best keys as scores decay."""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from torch import Tensor

import optimized as kv
from optimized.models.systems import refinement_settings, system_named
from optimized.study.pictures.caption_phrases import share, verdict
from optimized.study.pictures.captured import Captured
from optimized.study.pictures.drawing import ALIKE, INK, SCORE, STRONG, WEAK, image, title

SHOWN, BEST, BINS, KEPT, ROUNDS = 128, 10, 20, 0.05, 3


class Likeness(NamedTuple):
    """Cosine similarities of keys of one head: all keys, and the best before and after decay."""

    layer: int
    every: Float[Tensor, "tokens tokens"]
    before: Float[Tensor, "best best"]
    after: Float[Tensor, "best best"]


class Plane(NamedTuple):
    """The keys of one head on two axes, their scores and the best, round after round."""

    layer: int
    places: Float[Tensor, "tokens axes"]
    scores: Float[Tensor, "rounds tokens"]
    best: Int[Tensor, "rounds kept"]


def decayed(
    scores: Float[Tensor, "*batch heads tokens"],
    keys: Float[Tensor, "*batch heads tokens width"],
    keep: int,
    length: int,
    reading: str,
    rounds: int = 1,
) -> Float[Tensor, "*batch heads tokens"]:
    """Return the scores after `rounds` rounds of GraphKV, on a document of `length` tokens."""
    settings = refinement_settings(system_named("snapkv+graphkv"), reading)._replace(rounds=rounds)
    if settings.adaptive:
        count = kv.neighbour_count(settings.count, length)
        settings = settings._replace(count=count, adaptive=False)
    return kv.graphkv_refine(scores, keys, keep, **settings._asdict())


def best(
    scores: Float[Tensor, "*batch tokens"], keys: Float[Tensor, "*batch tokens width"], count: int
) -> Float[Tensor, "*batch best width"]:
    """Return the keys with the highest scores, the best first."""
    order = kv.ranking(scores)[..., :count]
    return keys.gather(-2, order[..., None].expand(*order.shape, keys.shape[-1]))


def best_key_similarity(caught: Captured, reading: str) -> tuple[dict[str, Any], Likeness]:
    """Return the similarities of the best tokens of a stretch before and after one round."""
    stretch = slice(caught.content.start, min(caught.content.start + SHOWN, caught.content.stop))
    keys, scores = caught.keys[..., stretch, :], caught.observed[..., stretch]
    count, length = min(BEST, keys.shape[-2] // 2), caught.keys.shape[-2]
    sets = {
        "every": keys,
        "before": best(decayed(scores, keys, count, length, reading, 0), keys, count),
        "after": best(decayed(scores, keys, count, length, reading, 1), keys, count),
    }
    middle = len(caught.layers) // 2
    found: dict[str, Any] = {
        "tokens": keys.shape[-2],
        "best": count,
        "graphs": keys.shape[:-2].numel(),
    }
    for name, vectors in sets.items():
        spread = kv.cosine_distribution(vectors, BINS)
        counts = spread.histogram.flatten(0, -2).sum(0)
        found[name] = {
            "mean": float(spread.mean.mean()),
            "variance": float(spread.variance.mean()),
            "shown": float(spread.mean[middle, 0, 0]),
            "histogram": (counts / counts.sum()).tolist(),
        }
    matrices = (kv.cosine_matrix(vectors[middle, 0, 0]) for vectors in sets.values())
    return found, Likeness(caught.layers[middle], *matrices)


def best_key_spread(caught: Captured, reading: str) -> tuple[dict[str, Any], Plane]:
    """Return the distances of the best tokens from their mean after 0, 1, 2 and 3 rounds."""
    keys, scores = caught.keys[..., caught.content, :], caught.observed[..., caught.content]
    kept, length = max(2, round(KEPT * keys.shape[-2])), caught.keys.shape[-2]
    refined = [decayed(scores, keys, kept, length, reading, each) for each in range(ROUNDS + 1)]
    places = kv.principal_components(keys)
    order = torch.stack([kv.ranking(one)[..., :kept] for one in refined])
    wide, first = extent(places), order[0]
    apart = [extent(best(one, places, kept)) / wide.clamp(min=1e-12) for one in refined]
    same = [(one[..., :, None] == first[..., None, :]).any(-1).float().mean() for one in order]
    middle = len(caught.layers) // 2
    found = {
        "kept": kept,
        "tokens": keys.shape[-2],
        "spread": [float(one.mean()) for one in apart],
        "spread_shown": [float(one[middle, 0, 0]) for one in apart],
        "replaced": [1 - float(one) for one in same],
    }
    shown = torch.stack(refined)[:, middle, 0, 0]
    plane = Plane(caught.layers[middle], places[middle, 0, 0], shown, order[:, middle, 0, 0])
    return found, plane


def extent(places: Float[Tensor, "*heads tokens axes"]) -> Float[Tensor, "*heads"]:
    """Return the root mean square distance of points from their mean."""
    return (places - places.mean(-2, keepdim=True)).square().sum(-1).mean(-1).sqrt()


def likeness_caption(found: dict[str, Any]) -> str:
    """Return the caption of the similarities."""
    every, before, after = (found[name] for name in ("every", "before", "after"))
    nearer = before["mean"] - every["mean"]
    less = after["mean"] < before["mean"]
    far = after["mean"] < 0.9 * before["mean"]
    narrower = after["variance"] < before["variance"]
    return (
        f"Cosine similarity of keys in one head: {found['tokens']} tokens, the {found['best']} "
        f"best by SnapKV's scores, and the {found['best']} best after one round of decay. Over "
        f"{found['graphs']} heads, the mean similarity is {every['mean']:.2f} for all tokens, "
        f"{before['mean']:.2f} (variance {before['variance']:.3f}) for the best, and "
        f"{after['mean']:.2f} ({after['variance']:.3f}) for the best after the decay. In the "
        "paper, important tokens are more similar than others: "
        f"{verdict(nearer > 0.1, nearer > 0)}. Their mean and variance are "
        f"lower after the decay: {verdict(far and narrower, less)}."
    )


def planes_caption(found: dict[str, Any]) -> str:
    """Return the caption of the planes."""
    spread, replaced = found["spread"], found["replaced"]
    rounds = ", ".join(f"{distance:.2f}" for distance in spread[1:])
    return (
        f"Keys of one head on their two main axes; large dots are the {found['kept']} best of "
        f"{found['tokens']} tokens. Their distance from their mean, relative to that of all keys "
        f"and averaged over heads, is {spread[0]:.2f} before and {rounds} after 1, 2 and 3 rounds. "
        f"The rounds replace {share(replaced[1])}, {share(replaced[2])} and {share(replaced[3])} "
        f"of the best. In the paper, the best lie in one region: "
        f"{verdict(spread[0] < 0.8, spread[0] < 1)}. After the first round they are sparser: "
        f"{verdict(spread[1] > 1.05 * spread[0], spread[1] > spread[0])}."
    )


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
        axes.set(xticks=[], yticks=[])
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
        percent = 100 * np.asarray(found[name]["histogram"])
        counts.stairs(percent, edges, color=colour, label=label, linewidth=1.4)
    title(counts, "(d) distribution")
    counts.set(xlabel="cosine similarity", ylabel="percent of pairs", xlim=(-1, 1))
    counts.set_ylim(0, 1.5 * counts.get_ylim()[1])
    counts.legend(loc="upper left")


def planes(canvas: Figure, _: dict[str, Any], shown: Plane) -> None:
    """Draw Fig. 7: keys on two axes, scores as colours, the best keys as large dots."""
    places = shown.places.numpy()
    panels = canvas.subplots(1, len(shown.scores), sharex=True, sharey=True)
    first = shown.scores[0]
    for rounds, (axes, scores, chosen) in enumerate(
        zip(panels, shown.scores, shown.best, strict=True)
    ):
        colours = (scores / first.max().clamp(min=1e-12)).clamp(max=1).sqrt().numpy()
        how = {"cmap": SCORE, "vmin": 0.0, "vmax": 1.0, "linewidths": 0}
        axes.scatter(*places.T, c=colours, s=6, alpha=0.45, rasterized=True, **how)
        kept = chosen.numpy()
        axes.scatter(*places[kept].T, c=colours[kept], s=34, **(how | {"linewidths": 0.6}), ec=INK)
        title(axes, f"T = {rounds}")
        axes.set(xticks=[], yticks=[])
    canvas.colorbar(
        ScalarMappable(Normalize(0, 1), SCORE),
        ax=list(panels),
        location="bottom",
        shrink=0.4,
        label="root of the score in units of the highest",
    )
