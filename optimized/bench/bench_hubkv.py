"""HubKV's refinement and selection.

Refinement and selection have the shapes of HubKV-Tab5, [36, B, 8, N] in bfloat16. The slow side is
the simplest implementation: every step over the whole tensor in float32, then one stable sort.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs

RATIO = 0.95
PAPER = {
    (4096, 1): "2.51",
    (4096, 4): "10.19",
    (8192, 1): "4.76",
    (8192, 4): "17.40",
    (16384, 1): "10.18",
    (16384, 4): "20.96",
    (32768, 1): "17.90",
    (32768, 4): "26.73",
}
"""Tokens, batch, and the paper's milliseconds of refinement and selection over FastKVzip."""


def table5(tokens: int, batch: int) -> Inputs:
    """Return scores and protected tokens of the paper's microbenchmark, few scores large."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(36, batch, 8, tokens, generator=generator).pow(4).to(torch.bfloat16)
    return dict(scores=scores, protected=kv.protected_mask(tokens).expand(scores.shape))


def refine_and_retain(scores: Tensor, protected: Tensor) -> Tensor:
    """Return the mask of the best entries of the whole model after refinement."""
    refined = kv.hubkv_refine(scores, RATIO, protected)
    return kv.retain(refined, protected, ratio=RATIO, scope="model")


def eager_refine(scores: Tensor, protected: Tensor) -> Tensor:
    """Return refined scores, with every step over the whole tensor in float32."""
    inside = (~protected[0, 0, 0]).nonzero()
    start, stop = int(inside[0]), int(inside[-1]) + 1
    content = scores.float()[..., start:stop]
    padded, tokens = F.pad(content, (2, 2), value=-math.inf), content.shape[-1]
    hubs = torch.ones_like(content, dtype=torch.bool)
    for distance in (1, 2):
        hubs &= content > padded[..., 2 - distance : 2 - distance + tokens]
        hubs &= content >= padded[..., 2 + distance : 2 + distance + tokens]
    mean = content.mean(-1, keepdim=True)
    variation = content.std(-1, correction=0, keepdim=True) / (mean + 1e-6)
    weights = (variation / variation.mean(-2, keepdim=True)).sqrt().clamp(0.8, 1.2)
    strength = RATIO**2
    corrected = weights * torch.where(hubs, content, 0.5 * content)
    refined = torch.ones_like(scores, dtype=torch.float32)
    refined[..., start:stop] = (1 - strength) * content + strength * corrected
    return refined.to(scores.dtype)


def eager_refine_and_sort(scores: Tensor, protected: Tensor) -> Tensor:
    """Return the mask of the best entries by eager refinement and one sort of all scores."""
    refined = eager_refine(scores, protected).movedim(0, 1).flatten(1)
    keep = kv.kept_count(refined.shape[-1], RATIO)
    order = refined.sort(descending=True, stable=True).indices[..., :keep]
    return torch.zeros_like(refined, dtype=torch.bool).scatter_(-1, order, True)


def of_the_paper(tokens: int, batch: int) -> Case:
    """Return the row of refinement and selection at one shape of the paper."""
    return Case(
        "hubkv_refine + retain",
        f"[36, {batch}, 8, {tokens}] bfloat16",
        lambda: table5(tokens, batch),
        refine_and_retain,
        eager_refine_and_sort,
        "eager refinement and stable sort",
        PAPER[tokens, batch],
    )


CASES = [of_the_paper(tokens, batch) for tokens, batch in PAPER]
