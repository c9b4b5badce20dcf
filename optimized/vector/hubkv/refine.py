"""HubKV from end to end, slab by slab."""

import torch
from torch import Tensor

from optimized.vector.hubkv.calibration import head_weights, variation
from optimized.vector.hubkv.discount import strongest_neighbours
from reference import errors
from reference.contract import scanning
from reference.hubkv.refine import protected_mask, shift_scores
from reference.precision import widen

__all__ = ["hubkv_refine", "protected_mask", "shift_scores"]

# Non-negative floats, minus zero aside, order like the integers with the same bits, and integers
# compare faster.
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
# So many scores stay in the cores' caches from the first step to the last.
SLAB = 2**19


def hubkv_refine(
    scores: Tensor,
    ratio: float,
    protected: Tensor | None,
    radius: int,
    gamma: float,
    tau: float,
    minimum: float,
    maximum: float,
    power: float,
    epsilon: float,
) -> Tensor:
    refined = torch.empty_like(scores, memory_format=torch.contiguous_format)
    stretch = _common_content(protected, scores.shape[-1])
    content, target = scores, refined
    if stretch is not None:
        refined[..., : stretch.start] = 1
        refined[..., stretch.stop :] = 1
        content, target, protected = scores[..., stretch], refined[..., stretch], None
    if target.numel() == 0:
        return refined
    rows = (-1, *target.shape[-2:])
    rest = (ratio**power, radius, gamma, tau, minimum, maximum, epsilon)
    size = max(1, SLAB // target.shape[-2:].numel())
    if scores.is_cuda or torch.compiler.is_compiling():
        size = target.numel()
    content, target = content.reshape(rows), target.view(rows)
    for start in range(0, len(target), size):
        slab = slice(start, start + size)
        aside = None if protected is None else protected.reshape(rows)[slab]
        slab_refined = _refine(content[slab], aside, *rest)
        # rounding keeps the order: what holds the largest holds all
        errors.in_range("scores", slab_refined.amax().to(scores.dtype))
        target[slab] = slab_refined
    return refined


def _common_content(protected: Tensor | None, tokens: int) -> slice | None:
    """Return the one stretch of content that all heads share, if they do."""
    if protected is None:
        return slice(0, tokens)
    if not scanning(protected):
        return None
    mask = protected.view(torch.int8)
    first = mask.flatten(0, -2)[0]
    places = (first == 0).nonzero().flatten()
    start, stop = (int(places[0]), int(places[-1]) + 1) if len(places) else (0, 0)
    alike = stop - start == len(places) and not (mask ^ first).amax()
    return slice(start, stop) if alike else None


def _refine(
    scores: Tensor,
    protected: Tensor | None,
    strength: float,
    radius: int,
    gamma: float,
    tau: float,
    minimum: float,
    maximum: float,
    epsilon: float,
) -> Tensor:
    bits = BITS[scores.itemsize]
    keys, content, inside = scores.view(bits) & torch.iinfo(bits).max, widen(scores), None
    if protected is not None:
        aside = protected.to(keys.dtype)
        keys = keys | -aside  # below every score
        inside = (1 - aside).to(content.dtype)
        content = content * inside
    selectivity = variation(content, epsilon, inside)
    weights = head_weights(selectivity, tau, minimum, maximum).unsqueeze(-1)
    errors.in_range("scores", weights)
    hub = (1 - strength) + strength * weights
    other = (1 - strength) + strength * (weights * gamma)
    if radius:
        before, after = strongest_neighbours(keys, radius, -1)
        # comparisons that write integers are vectorised, those that write booleans are not
        hubs = torch.gt(keys, before, out=torch.empty_like(keys))
        hubs &= torch.ge(keys, after, out=torch.empty_like(keys))
        # other <= hub: the maximum picks one of the two, many times faster than torch.where
        hub = torch.maximum(hubs.to(content.dtype) * hub, other)
    refined = content * hub
    return refined if inside is None else refined + (1 - inside)
