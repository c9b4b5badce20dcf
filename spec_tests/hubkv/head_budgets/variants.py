"""Another correct way to divide a budget."""

from fractions import Fraction
from heapq import nlargest

import torch

import reference
from spec_tests.variants.registry import register_variant


@register_variant("head_budgets", "values")
def layer_by_layer(scores, keep, rule, protected=None, epsilon=1e-6):
    """Compute weights in Python, and raise a level until the budget is used."""
    aside = torch.zeros_like(scores, dtype=torch.bool) if protected is None else protected
    layers = zip(
        scores.reshape(-1, *scores.shape[-2:]), aside.reshape(-1, *scores.shape[-2:]), strict=True
    )
    return torch.tensor([in_layer(s, a, keep, rule, epsilon) for s, a in layers]).reshape(
        scores.shape[:-1]
    )


def in_layer(scores, aside, keep, rule, epsilon):
    """Divide one layer's budget."""
    heads = [row[~shut].double() for row, shut in zip(scores, aside, strict=True)]
    low, high, total = aside.sum(-1).tolist(), scores.shape[-1], keep * len(heads)
    shares = [x / x.sum() if x.any() else torch.full_like(x, 1 / max(1, len(x))) for x in heads]
    if rule == "waterfill":
        ranked = [
            (share, -rank, -head)
            for head, row in enumerate(shares)
            for rank, share in enumerate(sorted(row.tolist(), reverse=True))
        ]
        best = [-head for _, _, head in nlargest(total - sum(low), ranked)]
        return [least + best.count(head) for head, least in enumerate(low)]
    spread = normalised([float(reference.selectivity(x, epsilon=epsilon)) for x in heads])
    width = normalised([float((-(p * p.log()).nansum()).exp()) * bool(len(p)) for p in shares])
    mixed = [(a + b) / 2 for a, b in zip(spread, width, strict=True)]
    weights = {"selectivity": spread, "entropy": width, "hybrid": mixed}[rule]
    parts = [max(1, round(w * 2**24)) for w in weights]
    quotas = poured(parts, low, high, total)
    whole = [int(q) for q in quotas]
    last = sorted(range(len(whole)), key=lambda head: whole[head] - quotas[head])
    for head in last[: total - sum(whole)]:
        whole[head] += 1
    return whole


def poured(parts, low, high, total):
    """Return the shares of a total in proportion to the parts, within bounds.

    Heads at a bound are fixed in each step: those at the lower bound if they need more, else those
    at the upper one.
    """
    fixed = {}
    while len(fixed) < len(parts):
        free = [h for h in range(len(parts)) if h not in fixed]
        level = Fraction(total - sum(fixed.values()), sum(parts[h] for h in free))
        below = {h: low[h] for h in free if level * parts[h] < low[h]}
        above = {h: high for h in free if level * parts[h] > high}
        lacking = sum(low[h] - level * parts[h] for h in below)
        beyond = sum(level * parts[h] - high for h in above)
        if not below and not above:
            return [
                Fraction(fixed[h]) if h in fixed else level * parts[h] for h in range(len(parts))
            ]
        fixed |= below if lacking >= beyond else {}
        fixed |= above if beyond >= lacking else {}
    return [Fraction(fixed[h]) for h in range(len(parts))]


def normalised(weights):
    """Return weights divided by their sum, or equal weights if the sum is 0."""
    total = sum(weights)
    return [w / total if total else 1 / len(weights) for w in weights]
