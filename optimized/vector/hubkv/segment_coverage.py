"""First touches of segments by one stable sort."""

import torch
from torch import Tensor


def segment_coverage(order: Tensor, tokens: int, segments: int) -> Tensor:
    touched, pick = (segments * order // max(tokens, 1)).sort(dim=-1, stable=True)
    # the stable sort keeps the order of picks in a segment: its first entry is the first touch
    new = torch.ones_like(touched, dtype=torch.bool)
    new[..., 1:] = touched.diff() != 0
    first = torch.empty_like(new).scatter_(-1, pick, new)
    return first.to(torch.float32) / segments


def uniform_spread(tokens: int, picks: int) -> Tensor:
    return -(-torch.arange(picks) * tokens // max(picks, 1))
