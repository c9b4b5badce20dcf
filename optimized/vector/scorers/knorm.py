"""KNorm: scores by the norms of keys."""

import torch
from torch import Tensor

from reference import Scored
from reference.precision import widen


def knorm(keys: Tensor, valid: Tensor | None, shift: bool) -> Scored:
    lengths = widen(keys).norm(dim=-1)
    if valid is not None:
        lengths = lengths.masked_fill(~valid[..., None, :], 0)
    longest = lengths.amax(-1, keepdim=True) if shift and lengths.shape[-1] else 0
    scores = longest - lengths
    if valid is not None and shift:
        scores = scores.masked_fill(~valid[..., None, :], 0)
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
