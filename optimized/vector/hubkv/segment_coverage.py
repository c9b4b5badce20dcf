"""First touches of segments by one scatter."""

import torch
from torch import Tensor


def segment_coverage(order: Tensor, tokens: int, segments: int) -> Tensor:
    *batch, picks = order.shape
    touched = segments * order // max(tokens, 1)
    turn = torch.arange(picks, device=order.device).expand(order.shape)
    # a segment that no pick touches is first touched after the last one
    first = order.new_full((*batch, segments), picks).scatter_reduce(-1, touched, turn, "amin")
    gains = order.new_zeros((*batch, picks + 1), dtype=torch.float32)
    return gains.scatter_(-1, first, 1 / segments)[..., :picks].contiguous()


def uniform_spread(tokens: int, picks: int) -> Tensor:
    return -(-torch.arange(picks) * tokens // max(picks, 1))
