"""HubKV without loops."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector.hubkv_windows import strongest_neighbours
from reference import errors


def hub_mask(
    scores: Float[Tensor, "*heads tokens"],
    radius: int = 2,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
) -> Bool[Tensor, "*heads tokens"]:
    errors.floating("scores", scores)
    errors.finite("scores", scores)
    errors.whole("radius", radius)
    if protected is not None:
        errors.boolean("protected", protected, scores.shape)
        scores = scores.masked_fill(protected, -torch.inf)
    if radius == 0 or scores.numel() == 0:
        return torch.ones_like(scores, dtype=torch.bool) if protected is None else ~protected
    before, after = strongest_neighbours(scores, radius, -torch.inf)
    # the lowest index wins a tie: strict on the left, not on the right
    hubs = (scores > before) & (scores >= after)
    return hubs if protected is None else hubs & ~protected


def discount(
    scores: Float[Tensor, "*heads tokens"],
    hubs: Bool[Tensor, "*heads tokens"],
    gamma: float = 0.5,
) -> Float[Tensor, "*heads tokens"]:
    errors.importance("scores", scores)
    errors.boolean("hubs", hubs, scores.shape)
    errors.open_fraction("gamma", gamma)
    return torch.where(hubs, scores, gamma * scores)


def smd(
    scores: Float[Tensor, "*heads tokens"],
    radius: int = 2,
    gamma: float = 0.5,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
) -> Float[Tensor, "*heads tokens"]:
    errors.importance("scores", scores)
    errors.open_fraction("gamma", gamma)
    hubs = hub_mask(scores, radius, protected)
    kept = hubs if protected is None else hubs | protected
    return torch.where(kept, scores, gamma * scores)
