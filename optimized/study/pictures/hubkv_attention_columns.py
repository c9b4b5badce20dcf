"""HubKV, Figs. 2 and 9: a few keys receive most attention, and neighbours similar amounts."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import max_pool2d

import optimized as kv
from optimized.study.pictures.caption_phrases import share, verdict
from optimized.study.pictures.captured import Captured, mean_received_attention
from optimized.study.pictures.drawing import HEAT, INK, WEAK, image, title
from optimized.study.pictures.hubkv_clusters import autocorrelation, deviation

PIXELS, STRONG, TRIMMED, DISTANCES = 256, 0.05, 100, 150


class Map(NamedTuple):
    """The attention of one head within the content; a pixel is the maximum over some tokens."""

    layer: int
    head: int
    first: int
    last: int
    weights: Float[Tensor, "queries keys"]


def maps(caught: Captured) -> tuple[dict[str, Any], list[Map]]:
    """Measure attention columns in one document.

    Returns:
        The shares of attention, and a map of the head with the strongest columns for the first,
        the middle and the last layer that is stored.
    """
    inner = caught.content
    queries, keys = caught.queries[:, 0], caught.keys[:, 0]
    shared = keys.repeat_interleave(queries.shape[1] // keys.shape[1], 1)
    density = mean_received_attention(queries[:, :, inner], shared[:, :, : inner.stop])[..., inner]
    shares, strong = strongest_columns(density)
    shown = sorted({0, len(caught.layers) // 2, len(caught.layers) - 1})
    heads = [int(shares[index].argmax()) for index in shown]
    pixel = -(-density.shape[-1] // PIXELS)
    found = []
    for index, head in zip(shown, heads, strict=True):
        own = slice(head, head + 1)
        weights = kv.attention_weights(queries[index, own, inner], shared[index, own, : inner.stop])
        pooled = max_pool2d(weights[..., inner.start :], pixel, ceil_mode=True)[0]
        found.append(Map(caught.layers[index], head, inner.start, inner.stop - 1, pooled))
    return {
        "pixel": pixel,
        "strong": STRONG,
        "share_mean": float(shares.mean()),
        "share_even": float(strongest_columns(uniform_attention_received(inner.stop)[inner])[0]),
        "share_shown": [float(shares[index].max()) for index in shown],
        "shared": agreement(strong),
        "layers": [caught.layers[index] for index in shown],
        "heads": heads,
    }, found


def strongest_columns(density: Float[Tensor, "*heads tokens"]) -> tuple[Tensor, Tensor]:
    """Return the share of attention that the strongest columns receive, and their indices."""
    count = max(1, round(STRONG * density.shape[-1]))
    top = kv.ranking(density)[..., :count]
    return density.gather(-1, top).sum(-1) / density.sum(-1), top


def agreement(strong: Tensor) -> float:
    """Return the mean share of strongest columns that two heads of a layer have in common."""
    both = (strong[:, :, None, :, None] == strong[:, None, :, None, :]).any(-1).float().mean(-1)
    heads = both.shape[1]
    return float((both.sum((1, 2)) - heads).mean() / max(1, heads * (heads - 1)))


def uniform_attention_received(tokens: int) -> Float[Tensor, " tokens"]:
    """Return the mean attention that each key receives if queries attend to all keys equally."""
    return (1 / torch.arange(1, tokens + 1)).flip(0).cumsum(0).flip(0) / tokens


def density_autocorrelations(
    density: Float[Tensor, "layers documents heads content"],
) -> dict[str, Any]:
    """Return autocorrelations of the density, without its first tokens.

    Returns:
        The mean and the deviation over heads, the autocorrelation of the mean density, and that of
        equal attention to all keys.
    """
    content = density.shape[-1]
    trimmed = min(TRIMMED, content // 4)
    flat, left = (
        kv.content_series(series, trimmed, sinks=0, recent=0)
        for series in (uniform_attention_received(content), density)
    )
    per_head = left.flatten(0, 2)
    distances = min(DISTANCES, per_head.shape[-1] // 2)
    whole = left.mean((0, 2))  # a sequence for each document
    heads = kv.autocorrelation(per_head, distances)
    return {
        "trimmed": trimmed,
        "heads": heads.mean(0).tolist(),
        "heads_deviation": deviation(heads).tolist(),
        "mean": kv.autocorrelation(whole, distances).mean(0).tolist(),
        "even": kv.autocorrelation(flat, distances).tolist(),
    }


def maps_caption(found: dict[str, Any]) -> str:
    """Return the caption of the maps."""
    named = ", ".join(
        f"layer {layer} head {head} ({share(strong)})"
        for layer, head, strong in zip(
            found["layers"], found["heads"], found["share_shown"], strict=True
        )
    )
    mean, flat = found["share_mean"], found["share_even"]
    return (
        f"Queries downwards, keys to the right, brighter where more attention goes; a pixel is the "
        f"largest of {found['pixel']} × {found['pixel']} weights. Vertical stripes are keys that "
        f"many queries attend to. The strongest {STRONG:.0%} of the keys "
        f"receive {share(mean)} of the attention within the content, mean over heads; with equal "
        f"attention to all keys, {share(flat)}. Shown are the heads with the strongest columns: "
        f"{named}. Two heads of a layer have {share(found['shared'])} of their strongest keys in "
        f"common, where chance gives {STRONG:.0%}. The paper sees columns that heads share: "
        f"{verdict(mean > 2 * flat and found['shared'] > 2 * STRONG, mean > flat)}."
    )


def correlation_caption(found: dict[str, Any]) -> str:
    """Return the caption of the correlation."""
    heads, mean, flat = (found[name][1] for name in ("heads", "mean", "even"))
    far = min(32, len(found["heads"]) - 1)
    return (
        f"Autocorrelation of the attention that each key receives, without the first "
        f"{found['trimmed']} tokens. At distances 1 and {far}, a head has {heads:.2f} and "
        f"{found['heads'][far]:.2f} on average; the mean of all heads has {mean:.2f} and "
        f"{found['mean'][far]:.2f}. The paper sees a high correlation at short distances that "
        f"decays exponentially: {verdict(mean >= 0.5, mean > 0.2)}. Such a correlation need not be "
        f"locality: earlier keys are seen by more queries, so that equal attention to all keys "
        f"would have {flat:.2f} at distance 1."
    )


def columns(canvas: Figure, _: dict[str, Any], maps: Sequence[Map]) -> None:
    """Draw Fig. 2: attention of the heads with the strongest columns."""
    for axes, drawn in zip(np.ravel(canvas.subplots(1, len(maps))), maps, strict=True):
        bright = drawn.weights**0.4  # makes the background visible beside the columns
        image(axes, bright, HEAT, 0.0, max(1e-6, float(bright.max())))
        title(axes, f"layer {drawn.layer}, head {drawn.head}")
        last = len(drawn.weights) - 1
        axes.set_xticks([0, last], [str(drawn.first), str(drawn.last)])
        axes.set_yticks([0, last], [str(drawn.first), str(drawn.last)])
        axes.set(xlabel="key", ylabel="query")


def density_autocorrelation(canvas: Figure, found: dict[str, Any]) -> None:
    """Draw Fig. 9: the autocorrelation of the attention that keys receive."""
    axes = canvas.subplots()
    autocorrelation(axes, found["heads"], found["heads_deviation"], "a head, mean ± deviation")
    distances = range(1, len(found["mean"]))
    axes.plot(distances, found["mean"][1:], color=WEAK, label="mean of all heads")
    axes.plot(distances, found["even"][1:], ":", color=INK, label="equal attention to all keys")
    axes.legend(loc="upper right")
