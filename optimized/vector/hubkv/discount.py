"""Hubs by sliding maxima over windows of doubling width."""

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector._by_numpy import array, on_cpu
from reference.precision import widen


def hub_mask(scores: Tensor, radius: int, protected: Tensor | None) -> Tensor:
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    if radius == 0 or scores.numel() == 0:
        return torch.ones_like(scores, dtype=torch.bool) if protected is None else ~protected
    if on_cpu(scores):
        scores = widen(scores)
    before, after = maxima_before_and_after(scores, radius, -torch.inf)
    # the lowest index wins a tie: strict on the left, not on the right
    if on_cpu(scores):
        here = array(scores)
        hubs = torch.from_numpy((here > array(before)) & (here >= array(after)))
    else:
        hubs = (scores > before) & (scores >= after)
    return hubs if protected is None else hubs & ~protected


def maxima_before_and_after(keys: Tensor, radius: int, lowest: float) -> tuple[Tensor, Tensor]:
    """Return the maximum of the `radius` keys before and of the `radius` keys after each token.

    `keys` compare like the scores and are never below `lowest`, the padding beyond the row. The
    window maxima take log2(radius) steps.
    """
    tokens = keys.shape[-1]
    radius = min(radius, tokens)
    best, width = F.pad(keys, (radius, radius), value=lowest), 1
    while width < radius:
        further = min(width, radius - width)
        best = torch.maximum(best[..., :-further], best[..., further:])
        width += further
    return best[..., :tokens], best[..., radius + 1 : radius + 1 + tokens]


def discount(scores: Tensor, hubs: Tensor, gamma: float) -> Tensor:
    # the discounted score is the smaller one, and the maximum many times as fast as `torch.where`
    return torch.maximum(scores * hubs.view(torch.uint8), gamma * scores)


@kernel_on_gpu
def smd(scores: Tensor, radius: int, gamma: float, protected: Tensor | None) -> Tensor:
    discounted = discount(scores, hub_mask(scores, radius, protected), gamma)
    return discounted if protected is None else torch.where(protected, scores, discounted)
