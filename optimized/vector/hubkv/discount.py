"""Hubs by doubling windows."""

import torch
from torch import Tensor

import reference
from optimized._composed import composed
from optimized.vector.hubkv._windows import strongest_neighbours
from reference.hubkv.discount import discount

__all__ = ["discount", "hub_mask", "smd"]


def hub_mask(scores: Tensor, radius: int = 2, protected: Tensor | None = None) -> Tensor:
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    if radius == 0 or scores.numel() == 0:
        return torch.ones_like(scores, dtype=torch.bool) if protected is None else ~protected
    before, after = strongest_neighbours(scores, radius, -torch.inf)
    # the lowest index wins a tie: strict on the left, not on the right
    hubs = (scores > before) & (scores >= after)
    return hubs if protected is None else hubs & ~protected


smd = composed(reference.smd)
