"""Plain ways to HubKV's functions."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import (
    KV_HEADS,
    Draw,
    Inputs,
    importance,
    normal,
    row,
    scored,
)

SHAPE = "8 heads, {} tokens"
SQUARE = "one head, {} tokens, a weight for each pair"
PAIRS = 4096
"""The most tokens of which all pairs are stored."""
SINKS, GAMMA = 4, 0.5


@row(scored(), SHAPE)
def hub_mask(scores: Tensor) -> Tensor:
    """Compare with the maximum of the window."""
    return scores == F.max_pool1d(scores, 5, 1, 2)


def hubs(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores and their hubs."""
    given = scored()(tokens, dtype)
    return given | dict(hubs=kv.hub_mask(**given))


@row(hubs, SHAPE)
def discount(scores: Tensor, hubs: Tensor) -> Tensor:
    """Halve the others."""
    return torch.where(hubs, scores, GAMMA * scores)


@row(scored(), SHAPE)
def smd(scores: Tensor) -> Tensor:
    """Find the hubs and halve the others."""
    return torch.where(scores == F.max_pool1d(scores, 5, 1, 2), scores, GAMMA * scores)


@row(scored(), SHAPE)
def nms(scores: Tensor) -> Tensor:
    """Find the hubs and suppress the others."""
    return torch.where(scores == F.max_pool1d(scores, 7, 1, 3), scores, 0.3 * scores)


@row(scored(), SHAPE)
def selectivity(scores: Tensor) -> Tensor:
    """Divide the standard deviation by the mean."""
    variance, mean = torch.var_mean(scores.float(), -1, correction=0)
    return variance.sqrt() / (mean + 1e-6)


def of_heads(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the selectivity of heads, as many as there would be tokens."""
    return dict(selectivity=importance(0, tokens // 8, 8).to(dtype))


@row(of_heads, "{}/8 layers of 8 heads")
def head_weights(selectivity: Tensor) -> Tensor:
    """Take the root of the share of the mean, within bounds."""
    wide = selectivity.float()
    return (wide / wide.mean(-1, keepdim=True)).sqrt().clamp(0.8, 1.2)


def weighted(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores and the weight of each head."""
    return scored()(tokens, dtype) | dict(weights=importance(1, 1, KV_HEADS).to(dtype))


@row(weighted, SHAPE)
def calibrate(scores: Tensor, weights: Tensor) -> Tensor:
    """Multiply."""
    return scores * weights[..., None]


def corrected(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores before and after a correction."""
    given = scored(ratio=0.9)(tokens, dtype)
    return given | dict(corrected=0.5 * given["scores"])


@row(corrected, SHAPE)
def gate(scores: Tensor, corrected: Tensor, ratio: float) -> Tensor:
    """Interpolate."""
    return torch.lerp(scores, corrected, ratio**2)


@row(lambda tokens, _: dict(tokens=tokens), "{} tokens")
def protected_mask(tokens: int) -> Tensor:
    """Mark both ends."""
    mask = torch.zeros(tokens, dtype=torch.bool)
    mask[:SINKS] = mask[tokens - tokens // 50 :] = True
    return mask


def corrected_content(content: Tensor) -> Tensor:
    """Discount all but the hubs, and weigh the heads."""
    variance, mean = torch.var_mean(content, -1, correction=0, keepdim=True)
    spread = variance.sqrt() / (mean + 1e-6)
    weights = (spread / spread.mean(-2, keepdim=True)).sqrt().clamp(0.8, 1.2)
    hubs = content == F.max_pool1d(content.flatten(0, -2), 5, 1, 2).view_as(content)
    return weights * torch.where(hubs, content, GAMMA * content)


def with_ends(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores of which both ends are protected."""
    ends = kv.protected_mask(tokens).expand(1, KV_HEADS, tokens)
    return scored(ratio=0.95, protected=ends)(tokens, dtype)


@row(with_ends, SHAPE)
def hubkv_refine(scores: Tensor, ratio: float, protected: Tensor) -> Tensor:
    """Cut off the protected ends, and mix the scores between them with the corrected ones."""
    del protected  # a user knows which tokens these are
    inside = slice(SINKS, scores.shape[-1] - scores.shape[-1] // 50)
    content = scores[..., inside].float()
    refined = torch.ones_like(scores)
    refined[..., inside] = torch.lerp(content, corrected_content(content), ratio**2)
    return refined


@row(scored(), SHAPE)
def ungated_refine(scores: Tensor) -> Tensor:
    """Correct all scores."""
    return corrected_content(scores.float()).to(scores.dtype)


@row(scored(), SHAPE)
def shift_scores(scores: Tensor) -> Tensor:
    """Subtract the least."""
    return scores - scores.amin(-1, keepdim=True)


def divided(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores and a budget to divide."""
    return scored(keep=tokens // 4, rule="waterfill")(tokens, dtype)


@row(divided, SHAPE + ", waterfill")
def head_budgets(scores: Tensor, keep: int, rule: str) -> Tensor:
    """Count the places of the largest shares of all heads."""
    del rule
    shares = scores.double() / scores.double().sum(-1, keepdim=True)
    best = shares.flatten().topk(keep * KV_HEADS, sorted=False).indices
    return torch.bincount(best // scores.shape[-1], minlength=KV_HEADS)[None]


def ordered(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the order in which tokens of each head are picked."""
    return dict(order=kv.ranking(**scored()(tokens, dtype)), tokens=tokens)


@row(ordered, SHAPE)
def segment_coverage(order: Tensor, tokens: int) -> Tensor:
    """Find the first pick of each of 64 segments."""
    segment, last = 64 * order // tokens, order.new_full((*order.shape[:-1], 64), tokens)
    turn = torch.arange(order.shape[-1]).expand(order.shape)
    first = last.scatter_reduce(-1, segment, turn, "amin")
    return torch.zeros(order.shape).scatter_(-1, first, 1 / 64)


@row(lambda tokens, _: dict(tokens=tokens, picks=tokens // 4), "{} tokens")
def uniform_spread(tokens: int, picks: int) -> Tensor:
    """Divide, rounded up."""
    return -(-torch.arange(picks) * tokens // picks)


def series(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a sequence of each head, and how far it is shifted at most."""
    return dict(values=importance(3, 1, KV_HEADS, tokens).to(dtype), distances=128)


@row(series, SHAPE + ", 128 distances")
def autocorrelation(values: Tensor, distances: int) -> Tensor:
    """Multiply the Fourier transform with its conjugate."""
    wide, tokens = values.float(), values.shape[-1]
    centred = wide - wide.mean(-1, keepdim=True)
    power = torch.fft.rfft(centred, 2 * tokens).abs().square()
    sums = torch.fft.irfft(power, 2 * tokens)[..., : distances + 1]
    means = sums / (tokens - torch.arange(distances + 1))
    return means / means[..., :1]


def observed(**settings: Any) -> Draw:
    """Return the attention of 256 queries, with settings."""

    def draw(tokens: int, dtype: torch.dtype) -> Inputs:
        count = min(256, tokens)
        weights = kv.attention_weights(normal(0, 1, count, 8), normal(1, 1, tokens, 8))
        return dict(weights=weights.to(dtype)) | settings

    return draw


@row(observed(distances=128), "one head, 256 queries, {} tokens")
def distance_profile(weights: Tensor, distances: int) -> Tensor:
    """Average each diagonal."""
    queries, tokens = weights.shape[-2:]
    wide = weights.float()
    means = [wide.diagonal(tokens - queries - d, -2, -1).mean(-1) for d in range(distances + 1)]
    return torch.stack(means, -1)


def dense(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return the attention of 256 queries, and the content after four sinks."""
    return observed()(tokens, dtype) | dict(content=torch.arange(tokens) >= SINKS)


@row(dense, "one head, 256 queries, {} tokens")
def attention_density(weights: Tensor, content: Tensor) -> Tensor:
    """Average the rows of the content."""
    return weights[..., content[-weights.shape[-2] :], :].float().mean(-2)


@row(lambda tokens, dtype: dict(values=scored()(tokens, dtype)["scores"]), SHAPE)
def content_series(values: Tensor) -> Tensor:
    """Cut off both ends."""
    return values[..., SINKS : values.shape[-1] - values.shape[-1] // 50].clone()


def selections(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return two selections of each head, and a span."""
    masks = (importance(s, KV_HEADS, tokens) < 0.25 for s in (0, 1))
    span = torch.arange(tokens) < tokens // 4
    return dict(zip(("base", "refined"), masks, strict=True)) | dict(span=span)


@row(selections, SHAPE)
def retained_chains(base: Tensor, refined: Tensor, span: Tensor) -> tuple[Tensor, ...]:
    """Count the heads that keep each token of the span, before and after."""
    before, after = base[:, span].sum(0), refined[:, span].sum(0)
    means = (x.float().mean() / len(base) for x in (before, after, after - before))
    return *means, (after != before).float().mean()


@row(lambda tokens, dtype: dict(tokens=tokens, radius=8, dtype=dtype), "{} tokens")
def window_kernel(tokens: int, radius: int, dtype: torch.dtype) -> Tensor:
    """Fill the window."""
    kernel = torch.zeros(tokens, dtype=dtype)
    kernel[: radius + 1] = 1
    return kernel


@row(lambda tokens, dtype: dict(tokens=tokens, deviation=8.0, dtype=dtype), "{} tokens")
def gaussian_kernel(tokens: int, deviation: float, dtype: torch.dtype) -> Tensor:
    """Take the exponential."""
    return (-0.5 * (torch.arange(tokens).float() / deviation) ** 2).exp().to(dtype)


def spread(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return scores of one head and a kernel."""
    kernel = kv.gaussian_kernel(tokens, 8.0, dtype)
    return dict(scores=importance(3, 1, tokens).to(dtype), kernel=kernel)


@row(spread, SQUARE, PAIRS)
def coverage_weights(scores: Tensor, kernel: Tensor) -> Tensor:
    """Divide the kernel at all distances by its sums."""
    at = torch.arange(scores.shape[-1])
    shape = kernel.float()[(at[:, None] - at).abs()]
    return shape * (scores.float() / shape.sum(0))[..., None, :]


def pairs(**settings: Any) -> Draw:
    """Return a weight for each pair of tokens of one head, with settings."""

    def draw(tokens: int, dtype: torch.dtype) -> Inputs:
        return dict(weights=kv.coverage_weights(**spread(tokens, dtype)).to(dtype)) | settings

    return draw


def kept_pairs(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a weight for each pair of tokens, and a mask of a quarter."""
    return pairs(kept=(importance(4, 1, tokens) < 0.25))(tokens, dtype)


@row(kept_pairs, SQUARE, PAIRS)
def coverage(weights: Tensor, kept: Tensor) -> Tensor:
    """Take the maximum over the kept tokens, and sum over the places."""
    return weights[..., kept[0]].float().amax(-1).sum(-1)


@row(kept_pairs, SQUARE, PAIRS)
def marginal_gain(weights: Tensor, kept: Tensor) -> Tensor:
    """Sum what exceeds the best kept weight of each place."""
    wide = weights.float()
    return (wide - wide[..., kept[0]].amax(-1, keepdim=True)).relu().sum(-2)


@row(pairs(hub=7), SQUARE, PAIRS)
def overlap(weights: Tensor, hub: int) -> Tensor:
    """Sum the smaller of both weights."""
    wide = weights.float()
    return torch.minimum(wide, wide[..., hub, None]).sum(-2) / wide.sum(-2)


@row(pairs(keep=16), SQUARE + ", 16 picks", PAIRS)
def greedy(weights: Tensor, keep: int) -> Tensor:
    """Compute all gains before each pick."""
    wide, picks = weights[0].float(), []
    covered = wide.new_zeros(len(wide), 1)
    for _ in range(keep):
        picks.append((wide - covered).relu().sum(0).argmax())
        covered = torch.maximum(covered, wide[:, picks[-1], None])
    return torch.stack(picks)[None]


@row(pairs(keep=16), SQUARE + ", 16 picks", PAIRS)
def lazy_greedy(weights: Tensor, keep: int) -> Tensor:
    """Compute all gains before each pick."""
    return greedy(weights, keep)
