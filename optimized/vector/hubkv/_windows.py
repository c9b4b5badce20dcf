"""The strongest rival of every token, by doubling windows instead of sliding them."""

import torch
import torch.nn.functional as F
from torch import Tensor


def strongest_neighbours(keys: Tensor, radius: int, lowest: float) -> tuple[Tensor, Tensor]:
    """Return the maximum of the `radius` keys before and of the `radius` keys after each token.

    `keys` compare like the scores they stand for and are never below `lowest`, which stands where
    a window leaves the row. The window maxima take log2(radius) steps.
    """
    tokens = keys.shape[-1]
    radius = min(radius, tokens)
    best, width = F.pad(keys, (radius, radius), value=lowest), 1
    while width < radius:
        further = min(width, radius - width)
        best = torch.maximum(best[..., :-further], best[..., further:])
        width += further
    return best[..., :tokens], best[..., radius + 1 : radius + 1 + tokens]
