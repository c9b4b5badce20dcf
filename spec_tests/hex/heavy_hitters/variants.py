"""Other correct ways to sum attention, and to mark the tokens with the most."""

from fractions import Fraction

import numpy as np
import torch

from reference.precision import widest
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("attention_mass")
def by_one_product(
    queries, keys, span=None, causal=True, normalize=False, log_sum_exp=None
):  # fmt: skip
    """Multiply all queries by all keys at once, and mask the keys that a query does not see."""
    exact = widest(queries, keys, log_sum_exp)
    heads, count, width = queries.shape[-3:]
    kv_heads, tokens = keys.shape[-3:-1]
    each = keys.to(exact).repeat_interleave(heads // max(1, kv_heads), -3)
    logits = queries.to(exact) @ each.mT / width**0.5
    seen = torch.ones(count, tokens, dtype=torch.bool, device=keys.device)
    seen = seen.tril(tokens - count) if causal else seen
    logits = logits.masked_fill(~seen, -torch.inf)
    known = logits.logsumexp(-1) if log_sum_exp is None else log_sum_exp
    mass = (logits - known[..., None]).exp().sum((-3, -2))
    if normalize:
        mass = mass / seen.sum(0).clamp(min=1)
    return mass if span is None else mass[..., tokens - span :]


@register_variant("heavy_hitter_mask")
def by_rank(mass, ratio=0.02, recent=0, outside_recent=False):
    """Count the tokens before each one: those with more mass, and earlier ones with equal mass."""
    tokens = mass.shape[-1]
    at = torch.arange(tokens, device=mass.device)
    rivals = at < tokens - recent if outside_recent else at >= 0
    mine, theirs = mass[..., :, None], mass[..., None, :]
    before = (theirs > mine) | ((theirs == mine) & (at < at[:, None]))
    rank = (before & rivals).sum(-1)
    return rivals & (rank < int(Fraction(str(ratio)) * tokens))


@register_variant("heavy_hitter_mask", "values")
@among_tensors
def by_sorting(mass, ratio=0.02, recent=0, outside_recent=False):
    """Sort each row in NumPy in descending order, the earlier of equals first."""
    tokens = mass.shape[-1]
    rivals = max(0, tokens - recent) if outside_recent else tokens
    order = np.argsort(-mass[..., :rivals], axis=-1, kind="stable")
    heavy = np.zeros(mass.shape, bool)
    chosen = order[..., : int(Fraction(str(ratio)) * tokens)]
    np.put_along_axis(heavy, chosen, True, axis=-1)
    return heavy


@register_variant("recent_mask")
def by_slice(tokens, recent):
    """Mark a slice at the end."""
    window = torch.zeros(tokens, dtype=torch.bool)
    window[max(0, tokens - recent) :] = True
    return window


@register_variant("h2o_mask")
def by_union(mass, ratio=0.02, recent=8, outside_recent=False):
    """Add the window to the marked heavy hitters."""
    marked = by_rank(mass, ratio, recent, outside_recent)
    marked[..., max(0, mass.shape[-1] - recent) :] = True
    return marked
