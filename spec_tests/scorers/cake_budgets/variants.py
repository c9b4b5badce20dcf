"""Other ways to divide a budget."""

import numpy as np
import torch

from spec_tests.variants.registry import register_variant


def lengths(preferences, tokens):
    """Return the number of tokens of each row."""
    return torch.as_tensor(tokens).expand(preferences.shape[1:])


def quotas(wishes, total):
    """Return the quotas, computed in float32, or in float64 for preferences of that dtype."""
    wishes = wishes.to(torch.promote_types(wishes.dtype, torch.float32))
    share = wishes / wishes.sum()
    return [int(part * total) for part in share.nan_to_num(0)]


def dealt(shares, left, most):
    """Give `left` places out, one at a time, to the layers that are not full."""
    waiting = [layer for layer, share in enumerate(shares) if share < most]
    for place in range(left if waiting else 0):
        shares[waiting[place % len(waiting)]] += 1


def divided(wishes, total, rooms, exact):
    """Return the places of each layer without its window."""
    shares, most = quotas(wishes, total), max(rooms)
    if exact:
        shares = [min(pair) for pair in zip(shares, rooms, strict=True)]
        while sum(shares) < min(total, sum(rooms)):
            for layer, room in enumerate(rooms):
                if shares[layer] < room and sum(shares) < total:
                    shares[layer] += 1
        return shares
    over = sum(max(0, share - most) for share in shares)
    shares = [min(share, most) for share in shares]
    dealt(shares, over, most)
    dealt(shares, total - sum(shares), most)
    return [min(pair) for pair in zip(shares, rooms, strict=True)]


@register_variant("cake_budgets", "values")
def in_float32(preferences, keep, tokens, window=32, exact=False):
    """Round down quotients of floats."""
    budgets, layers = torch.zeros(preferences.shape, dtype=torch.int64), len(preferences)
    every = lengths(preferences, tokens)
    for place in np.ndindex(*every.shape):
        length = int(every[place])
        shares = [max(0, length - window)] * layers
        if layers and (exact or length > keep + window):
            wishes = preferences[(slice(None), *place)]
            shares = divided(wishes, (keep - window) * layers, shares, exact)
        for layer, share in enumerate(shares):
            budgets[(layer, *place)] = share + min(window, length)
    return budgets


@register_variant("cake_cascade", "values")
def step_by_step(preferences, keep, tokens, window=32, exact=False):
    """Divide again among the layers so far, each limited to its share of the step before."""
    layers = len(preferences)
    budgets = torch.zeros(layers, *preferences.shape, dtype=torch.int64)
    every = lengths(preferences, tokens)
    for place in np.ndindex(*every.shape):
        length = int(every[place])
        shares: list[int] = []
        for step in range(layers):
            shares.append(max(0, length - window))
            if exact or length > keep + window:
                wishes = preferences[(slice(step + 1), *place)]
                shares = divided(wishes, (keep - window) * layers, shares, exact)
            for layer, share in enumerate(shares):
                budgets[(step, layer, *place)] = share + min(window, length)
    return budgets
