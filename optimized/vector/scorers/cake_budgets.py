"""CAKE's budgets, of all layers and rows at once."""

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from reference.scorers.cake_budgets import tokens_per_row


def cake_budgets(
    preferences: Tensor, keep: int, tokens: int | Tensor, window: int, exact: bool
) -> Tensor:
    lengths = tokens_per_row(preferences, tokens)
    total = (keep - window) * preferences.shape[0]
    room = (lengths - window).clamp(min=0).expand(preferences.shape)
    if exact:
        shares = _shared(preferences, total, room)
    else:
        shares = _adjusted(preferences, total, room)
        shares = torch.where(lengths > keep + window, shares, room)
    return shares + lengths.clamp(max=window)


def cake_cascade(
    preferences: Tensor, keep: int, tokens: int | Tensor, window: int, exact: bool
) -> Tensor:
    lengths = tokens_per_row(preferences, tokens)
    layers = preferences.shape[0]
    budgets = lengths.new_zeros(layers, *preferences.shape)
    room, least = (lengths - window).clamp(min=0)[None], lengths.clamp(max=window)
    evicted, divided = lengths > keep + window, _shared if exact else _adjusted
    shares = room[:0]
    for step in range(layers):
        before, seen = torch.cat([shares, room]), preferences[: step + 1]
        shares = divided(seen, (keep - window) * layers, before)
        shares = shares if exact else torch.where(evicted, shares, before)
        budgets[step, : step + 1] = shares + least
    return budgets


def _adjusted(wishes: Tensor, total: int, room: Tensor) -> Tensor:
    """Return `total` divided in proportion to `wishes`; two passes share the surplus evenly."""
    if not wishes.numel():
        return room
    quotas, most = _quotas(wishes, total), room.amax(0)
    shares = _dealt(torch.minimum(quotas, most), (quotas - most).clamp(min=0).sum(0), most)
    return torch.minimum(_dealt(shares, total - shares.sum(0), most), room)


def _dealt(shares: Tensor, left: Tensor, most: Tensor) -> Tensor:
    """Return shares plus `left` places: evenly to those below `most`, the rest to the first."""
    below = shares < most
    count = below.sum(0).clamp(min=1)
    return shares + below * (left // count + (below.cumsum(0) <= left % count))


def _shared(wishes: Tensor, total: int, room: Tensor) -> Tensor:
    """Return `total` divided in proportion to `wishes` along the first axis, capped by `room`."""
    layers = wishes.shape[0]
    if not wishes.numel():
        return room
    places = room.sum(0).clamp(max=total)
    shares = torch.minimum(_quotas(wishes, total), room)
    free, left = room - shares, places - shares.sum(0)
    # add whole rounds, which fill the layers with the least room first, then one place each
    ranked = free.sort(0).values
    after = torch.arange(layers - 1, -1, -1, device=free.device)
    after = after.reshape(-1, *[1] * (wishes.ndim - 1))
    full = ((ranked.cumsum(0) + after * ranked) <= left).sum(0)
    filled = F.pad(ranked.cumsum(0), [0] * (2 * ranked.ndim - 2) + [1, 0])
    spent = filled.gather(0, full[None])[0]
    rounds = (left - spent) // (layers - full).clamp(min=1)
    rounds = torch.where(full == layers, free.amax(0), rounds)
    given = torch.minimum(free, rounds)
    waiting = free > rounds
    given += waiting & (waiting.cumsum(0) <= left - given.sum(0))
    return shares + given


@doubles_on_cpu
def _quotas(wishes: Tensor, total: int) -> Tensor:
    """Return each wish's part of `total`, rounded down; 0 if all wishes are 0."""
    exact = wishes.double()
    everything = exact.sum(0)
    return (exact * total / everything.masked_fill(everything == 0, 1)).floor().long()
