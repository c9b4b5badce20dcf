"""HubKV from end to end, slab by slab."""

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector._by_numpy import places
from optimized.vector.hubkv.discount import maxima_before_and_after
from optimized.vector.hubkv.head_calibration import variation
from reference.contract.enforce import any_true, may_branch_on_values
from reference.hubkv.head_calibration import head_weights
from reference.precision import widen

# Non-negative floats except minus zero order like the integers with the same bits, and integers
# compare faster.
BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}

# Scores of a slab, which stay in the caches of the cores through all steps.
SLAB = 2**19


def protected_mask(tokens: int, sinks: int, recent: int | None) -> Tensor:
    mask = torch.zeros(tokens, dtype=torch.bool)
    mask[:sinks] = mask[max(0, tokens - (tokens // 50 if recent is None else recent)) :] = True
    return mask


@kernel_on_gpu
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
    target, stretch = refined, common_content_slice(protected, scores.shape[-1])
    if stretch is not None:
        refined[..., : stretch.start] = 1
        refined[..., stretch.stop :] = 1
        target, scores, protected = refined[..., stretch], scores[..., stretch], None
    if target.numel() == 0:
        return refined
    rows, strength = (-1, *scores.shape[-2:]), float(ratio) ** power
    size = max(1, SLAB // scores.shape[-2:].numel())
    if scores.is_cuda or torch.compiler.is_compiling():
        size = scores.numel()
    raw, target = scores.reshape(rows), target.view(rows)
    masks = None if protected is None else protected.reshape(rows)
    for start in range(0, len(raw), size):
        slab = slice(start, start + size)
        mask = None if masks is None else masks[slab]
        content, inside = content_and_mask(raw[slab], mask)
        weights = head_weights(variation(content, epsilon, inside), tau, minimum, maximum)
        hubs = hubs_among(raw[slab], mask, radius) if radius else None
        target[slab] = mixed(content, inside, hubs, weights.unsqueeze(-1), strength, gamma)
    return refined


def common_content_slice(protected: Tensor | None, tokens: int) -> slice | None:
    """Return the one stretch of unprotected tokens that all heads share, or None."""
    if protected is None:
        return slice(0, tokens)
    if not may_branch_on_values(protected):
        return None
    first = protected.flatten(0, -2)[0]
    content = places(~first)
    start, stop = content[[0, -1]].tolist() if len(content) else (0, -1)
    stop += 1
    alike = stop - start == len(content) and not any_true(protected ^ first)
    return slice(start, stop) if alike else None


def content_and_mask(scores: Tensor, protected: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Return the scores for the head statistics, 0 where protected, and the mask of the others."""
    if protected is None:
        return widen(scores), None
    inside = (~protected).to(widen(scores).dtype)
    return widen(scores) * inside, inside


def hubs_among(scores: Tensor, protected: Tensor | None, radius: int) -> Tensor:
    """Return 1 at the hubs of unprotected tokens, else 0."""
    bits = BITS[scores.itemsize]
    keys = scores.view(bits)
    if not may_branch_on_values(keys) or keys.amin().item() < 0:
        keys = keys & torch.iinfo(bits).max
    if protected is not None:
        keys = keys | -protected.to(keys.dtype)  # below every score
    before, after = maxima_before_and_after(keys, radius, -1)
    # PyTorch vectorises comparisons that write integers, not those that write booleans
    hubs = torch.gt(keys, before, out=torch.empty_like(keys))
    hubs &= torch.ge(keys, after, out=torch.empty_like(keys))
    return hubs


def mixed(
    content: Tensor,
    inside: Tensor | None,
    hubs: Tensor | None,
    weights: Tensor,
    strength: float,
    gamma: float,
) -> Tensor:
    """Return the refined scores, 1 at protected tokens; without `hubs` every token is one."""
    hub = (1 - strength) + strength * weights
    if hubs is not None:
        other = (1 - strength) + strength * (weights * gamma)
        # other <= hub: the maximum picks one of the two, many times faster than torch.where
        hub = torch.maximum(hubs.to(content.dtype) * hub, other)
    refined = content * hub
    return refined if inside is None else refined + (1 - inside)
