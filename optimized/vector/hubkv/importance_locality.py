"""How importance clusters, over all distances and queries at once."""

import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from optimized.vector.hubkv.refine import protected_mask
from reference.precision import widen


@doubles_on_cpu
def autocorrelation(values: Tensor, distances: int) -> Tensor:
    tokens = values.shape[-1]
    values = widen(values)
    if not values.numel():
        return values.new_zeros(*values.shape[:-1], distances + 1)
    centred = values - values.mean(-1, keepdim=True)
    # zeros after the sequence keep its ends apart, float64 the rounding of long sequences small
    # few small prime factors: 8 to 16 times a power of two
    unit = 1 << max(0, (tokens + distances).bit_length() - 4)
    length = -(-(tokens + distances) // unit) * unit
    waves = torch.fft.rfft(centred.double(), length)
    sums = torch.fft.irfft(waves * waves.conj(), length)[..., : distances + 1]
    pairs = tokens - torch.arange(distances + 1, device=values.device)
    covariances = (sums / pairs).to(values.dtype)
    constant = values.amax(-1, keepdim=True) == values.amin(-1, keepdim=True)
    return torch.where(constant, 0, covariances / covariances[..., :1])


def distance_profile(weights: Tensor, distances: int) -> Tensor:
    queries, tokens = weights.shape[-2:]
    weights = widen(weights)
    places = torch.arange(tokens - queries, tokens, device=weights.device)
    seen = places[:, None] - torch.arange(distances + 1, device=weights.device)
    index = seen.clamp(min=0).expand(*weights.shape[:-1], -1)
    pairs = weights.gather(-1, index).masked_fill(seen < 0, 0)
    return pairs.sum(-2) / (seen >= 0).sum(0)


def attention_density(weights: Tensor, content: Tensor | None) -> Tensor:
    queries, tokens = weights.shape[-2:]
    content = _unprotected(tokens) if content is None else content
    counted = content[tokens - queries :].to(weights.device)
    weights = widen(weights)
    return (counted.to(weights.dtype) @ weights) / counted.sum()


def _unprotected(tokens: int) -> Tensor:
    """Return the mask of the content with the specification's ends."""
    return ~protected_mask(tokens)  # pyright: ignore[reportCallIssue] dispatch adds defaults


def content_series(values: Tensor, trimmed: int, sinks: int, recent: int | None) -> Tensor:
    tokens = values.shape[-1]
    stop = max(0, tokens - (tokens // 50 if recent is None else recent))
    return values[..., min(sinks, stop) + trimmed : stop].clone()
