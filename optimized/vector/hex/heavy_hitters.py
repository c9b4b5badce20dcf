"""Attention mass and heavy hitters, in batches of queries."""

from fractions import Fraction
from functools import cache

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.attention import mass_by_blocks
from optimized.vector.retain import largest
from reference.contract import checks
from reference.precision import widest


@kernel_on_gpu
def attention_mass(
    queries: Tensor,
    keys: Tensor,
    span: int | None,
    causal: bool,
    normalize: bool,
    log_sum_exp: Tensor | None,
) -> Tensor:
    tokens, count = keys.shape[-2], queries.shape[-2]
    exact = widest(queries, keys, log_sum_exp)
    mass = keys.new_zeros(*keys.shape[:-3], tokens, dtype=exact)
    for seen, drawn in mass_by_blocks(queries, keys, None, log_sum_exp, exact, causal):
        mass[..., :seen] += drawn.sum((-3, -2))
    checks.refuse_overflow("queries", mass)
    if normalize and causal:
        last = torch.arange(tokens, 0, -1, device=keys.device)
        mass = mass / last.clamp(1, max(1, count))
    elif normalize:
        mass = mass / max(1, count)
    return mass[..., 0 if span is None else tokens - span :].clone()


@cache
def as_decimal(ratio: float) -> Fraction:
    """Return the decimal number that a ratio prints as."""
    return Fraction(str(ratio))


def heavy_hitter_mask(mass: Tensor, ratio: float, recent: int, outside_recent: bool) -> Tensor:
    tokens = mass.shape[-1]
    rivals = max(0, tokens - recent) if outside_recent else tokens
    count = min(int(as_decimal(ratio) * tokens), rivals)
    if rivals == tokens:
        return largest(mass, count)
    mask = torch.zeros_like(mass, dtype=torch.bool)
    mask[..., :rivals] = largest(mass[..., :rivals], count)
    return mask


def h2o_mask(mass: Tensor, ratio: float, recent: int, outside_recent: bool) -> Tensor:
    mask = heavy_hitter_mask(mass, ratio, recent, outside_recent)
    mask[..., max(0, mass.shape[-1] - recent) :] = True
    return mask
