"""Top-K without refinement."""

import torch
from torch import Tensor


def top_k_mask(scores: Tensor, count: int) -> Tensor:
    """Mark the `count` best of each row, the earlier of equals."""
    order = scores.sort(descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)
