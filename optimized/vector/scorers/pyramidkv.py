"""PyramidKV's budgets, of all layers and rows at once."""

import torch
from torch import Tensor


def pyramidkv_budgets(
    keep: int, layers: int, tokens: int | Tensor, window: int, beta: int, exact: bool
) -> Tensor:
    lengths = torch.as_tensor(tokens)
    room = (lengths - window).clamp(min=0)
    mean = room.clamp(max=keep - window)
    even = (lengths < 2 * (keep - window)) | (layers == 1)
    most = torch.where(even, mean, torch.minimum(2 * mean - mean // beta, room))
    drop, steps = 2 * (most - mean), max(1, layers - 1)
    layer = torch.arange(layers, device=lengths.device).view(-1, *[1] * lengths.ndim)
    if exact:
        # the line times `steps` is an integer, so remainders are exact
        line = most * steps - layer * drop
        share, rest = line // steps, line % steps
        order = rest.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
        share = share + (order < rest.sum(0) // steps)
    else:
        share = most - layer * (drop // steps)
    return share + lengths.clamp(max=window)
