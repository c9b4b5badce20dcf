"""HubKV's head statistics and weights, over all heads at once."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import errors
from reference.hubkv import errors as refuse
from reference.precision import widen


def selectivity(
    scores: Float[Tensor, "*heads tokens"],
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    epsilon: float = 1e-6,
) -> Float[Tensor, "*heads"]:
    errors.importance("scores", scores)
    errors.non_negative("epsilon", epsilon)
    wide = widen(scores)
    if protected is None:
        return variation(wide, epsilon)
    errors.boolean("protected", protected, scores.shape)
    inside = (~protected).to(wide.dtype)
    return variation(wide * inside, epsilon, inside)


def variation(content: Tensor, epsilon: float, inside: Tensor | None = None) -> Tensor:
    """Return the coefficient of variation of each row over the tokens where `inside` is 1.

    `content` is 0 where `inside` is 0.
    """
    if content.shape[-1] == 0:
        return content.new_zeros(content.shape[:-1])
    # measured from the lowest score, so that equal scores deviate by exactly 0
    if inside is None:
        count = content.shape[-1]
        low = content.amin(-1, keepdim=True)
        above = content - low
    else:
        count = inside.sum(-1, keepdim=True).clamp(min=1)
        # a token outside counts as the row's maximum, which is never below the lowest inside
        low = (content + (1 - inside) * content.amax(-1, keepdim=True)).amin(-1, keepdim=True)
        above = (content - low) * inside
    rise = above.sum(-1, keepdim=True) / count
    above = above - rise if inside is None else (above - rise) * inside
    deviation = (above.square().sum(-1, keepdim=True) / count).sqrt()
    scale = low + rise + epsilon
    found = torch.where(scale > 0, deviation / scale, 0).squeeze(-1)
    errors.in_range("scores", found)
    return found


def head_weights(
    selectivity: Float[Tensor, "*layers heads"],
    tau: float = 0.5,
    minimum: float = 0.8,
    maximum: float = 1.2,
) -> Float[Tensor, "*layers heads"]:
    errors.importance("selectivity", selectivity)
    errors.non_negative("tau", tau)
    refuse.clip_bounds("minimum", minimum, "maximum", maximum)
    wide = widen(selectivity)
    if wide.shape[-1] == 0:
        return wide.clone()
    # measured from the lowest, so that the mean of equal heads is exactly theirs
    exact = wide.double()
    low = exact.amin(-1, keepdim=True)
    # divided before the sum, which therefore cannot overflow
    mean = low + ((exact - low) / wide.shape[-1]).sum(-1, keepdim=True)
    return torch.where(mean > 0, exact / mean, 1).to(wide.dtype).pow(tau).clamp(minimum, maximum)
