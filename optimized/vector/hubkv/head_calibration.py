"""HubKV's head statistics, over all heads at once."""

import torch
from torch import Tensor

from reference.precision import widen


def selectivity(scores: Tensor, protected: Tensor | None, epsilon: float) -> Tensor:
    wide = widen(scores)
    inside = None if protected is None else (~protected).to(wide.dtype)
    return variation(wide if inside is None else wide * inside, epsilon, inside)


def variation(content: Tensor, epsilon: float, inside: Tensor | None = None) -> Tensor:
    """Return the coefficient of variation of each row over the tokens where `inside` is 1.

    `content` is 0 where `inside` is 0.
    """
    if content.shape[-1] == 0:
        return content.new_zeros(content.shape[:-1])
    # deviations are taken from the minimum, so that equal scores deviate by exactly 0
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
    # in units of their mean, since squares of small numbers underflow
    unit = rise.detach().clamp(min=torch.finfo(rise.dtype).tiny)
    apart = (above - rise).div_(unit)
    apart = apart if inside is None else apart * inside
    deviation = (apart.square().sum(-1, keepdim=True) / count).sqrt()
    scale = low + rise + epsilon
    return torch.where(scale > 0, deviation * (unit / scale), 0).squeeze(-1)
