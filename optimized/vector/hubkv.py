"""HubKV without loops."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

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
    hubs = _window_winners(scores, radius)
    return hubs if protected is None else hubs & ~protected


def _window_winners(scores: Tensor, radius: int) -> Tensor:
    tokens = scores.shape[-1]
    if radius == 0 or scores.numel() == 0:
        return torch.ones_like(scores, dtype=torch.bool)
    padded = F.pad(scores.reshape(-1, 1, tokens), (radius, radius), value=-torch.inf)
    best = F.max_pool1d(padded, radius, stride=1)[:, 0].reshape(*scores.shape[:-1], -1)
    before, after = best[..., :tokens], best[..., radius + 1 :]
    # the lowest index wins a tie: strict on the left, not on the right
    return (scores > before) & (scores >= after)


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
