"""Attention mass and the tokens it marks, many queries at a time."""

from fractions import Fraction

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector.attention import attention_weights
from reference import attention_errors, errors
from reference.precision import widen

# queries at a time: bounds the weights to this many rows a head
QUERIES = 512


def attention_mass(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    span: int | None = None,
    causal: bool = True,
    normalize: bool = False,
) -> Float[Tensor, "*batch span"]:
    attention_errors.attendable(queries, keys, causal)
    tokens, count = keys.shape[-2], queries.shape[-2]
    if span is not None:
        errors.whole("span", span, 0, tokens)
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    mass = keys.new_zeros(*keys.shape[:-3], tokens, dtype=exact)
    for start in range(0, count, QUERIES):
        stop = min(count, start + QUERIES)
        seen = tokens - count + stop if causal else tokens
        weights = attention_weights(queries[..., start:stop, :], keys[..., :seen, :], causal)
        mass[..., :seen] += weights.sum((-3, -2))
    if normalize and causal:
        last = torch.arange(tokens, 0, -1, device=keys.device)
        mass = mass / last.clamp(1, max(1, count))
    elif normalize:
        mass = mass / max(1, count)
    return mass[..., 0 if span is None else tokens - span :].clone()


def heavy_hitter_mask(
    mass: Float[Tensor, "*batch tokens"],
    ratio: float = 0.02,
    recent: int = 0,
    outside_recent: bool = False,
) -> Bool[Tensor, "*batch tokens"]:
    errors.floating("mass", mass)
    errors.finite("mass", mass)
    errors.fraction("ratio", ratio)
    errors.whole("recent", recent)
    tokens = mass.shape[-1]
    rivals = max(0, tokens - recent) if outside_recent else tokens
    count = min(int(Fraction(str(ratio)) * tokens), rivals)
    order = mass[..., :rivals].argsort(dim=-1, descending=True, stable=True)
    return torch.zeros_like(mass, dtype=torch.bool).scatter(-1, order[..., :count], True)


def recent_mask(tokens: int, recent: int) -> Bool[Tensor, " tokens"]:
    errors.whole("tokens", tokens)
    errors.whole("recent", recent)
    return torch.arange(tokens) >= tokens - recent


def h2o_mask(
    mass: Float[Tensor, "*batch tokens"],
    ratio: float = 0.02,
    recent: int = 8,
    outside_recent: bool = False,
) -> Bool[Tensor, "*batch tokens"]:
    heavy = heavy_hitter_mask(mass, ratio, recent, outside_recent)
    return heavy | recent_mask(mass.shape[-1], recent).to(mass.device)
