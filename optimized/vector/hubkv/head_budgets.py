"""Head budgets of all layers at once, in integer arithmetic."""

import numpy as np
import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from optimized.vector._by_numpy import array, on_cpu
from optimized.vector.hubkv.head_calibration import variation
from optimized.vector.retain import lowest_kept, sortable
from reference.contract.enforce import may_branch_on_values


@doubles_on_cpu
def head_budgets(
    scores: Tensor, keep: int, rule: str, protected: Tensor | None, epsilon: float
) -> Tensor:
    heads, tokens = scores.shape[-2:]
    if protected is None and rule == "waterfill" and scores.numel():
        places = torch.full((*scores.shape[:-2], 1), keep * heads, device=scores.device)
        return _best_of_all(_fractions(scores.double()), places)
    if protected is None:
        protected = torch.zeros_like(scores, dtype=torch.bool)
    lowest = protected.sum(-1)
    if scores.numel() == 0:
        return lowest
    inside = (~protected).double()
    content = scores.double() * inside
    shares = _fractions(content, inside)
    if rule == "waterfill":
        places = keep * heads - lowest.sum(-1, keepdim=True)
        return lowest + _best_of_all(shares.masked_fill(protected, -1), places)
    spread = _fractions(variation(content, epsilon, inside))
    width = torch.special.entr(shares).sum(-1).exp() * inside.any(-1)
    width = _fractions(width)
    weights = {"selectivity": spread, "entropy": width, "hybrid": (spread + width) / 2}[rule]
    parts = (weights * 2**24).round().long().clamp(min=1)
    return _apportion(parts, lowest, torch.full_like(lowest, tokens), keep * heads)


def _fractions(weights: Tensor, inside: Tensor | None = None) -> Tensor:
    """Return the weights divided by their sum along the last axis; equal shares if all are 0."""
    total = weights.sum(-1, keepdim=True)
    if may_branch_on_values(total) and total.amin().item() > 0:
        return weights / total
    inside = torch.ones_like(weights) if inside is None else inside
    return torch.where(total > 0, weights / total, inside / inside.sum(-1, keepdim=True).clamp(1))


def _best_of_all(shares: Tensor, places: Tensor) -> Tensor:
    """Return each head's number of entries among the best `places`; ties go to the better rank."""
    heads, tokens = shares.shape[-2:]
    if on_cpu(shares) and shares.numel():
        keys = sortable(shares).reshape(-1, heads * tokens)
        every, last = array(keys), lowest_kept(keys, places.flatten())
        shape = (-1, heads, tokens)
        counts = np.count_nonzero((every >= last).reshape(shape), -1)
        if counts.sum() != int(places.sum()):
            counts = np.count_nonzero((every > last).reshape(shape), -1)
            layer, head, _ = np.nonzero((every == last).reshape(shape))
            # the rank of an entry at its layer's last place: after those above, in turn
            group = layer * heads + head
            rank = counts[layer, head] + np.arange(len(group)) - np.searchsorted(group, group)
            order = np.lexsort((head, rank, layer))
            turn = np.arange(len(order)) - np.searchsorted(layer, layer)
            won = order[turn < (array(places).flatten() - counts.sum(-1))[layer]]
            np.add.at(counts, (layer[won], head[won]), 1)
        return torch.from_numpy(counts).view(shares.shape[:-1])
    by_rank = shares.sort(descending=True).values.transpose(-1, -2).flatten(-2)
    order = by_rank.sort(descending=True, stable=True).indices
    counts = torch.zeros(shares.shape[:-1], dtype=torch.int64, device=shares.device)
    won = torch.arange(order.shape[-1], device=shares.device) < places
    return counts.scatter_add(-1, order % heads, won.long())


def _apportion(parts: Tensor, lowest: Tensor, highest: Tensor, total: int) -> Tensor:
    """Return `total` divided in proportion to `parts` within bounds, by largest remainders."""
    # the levels at which a head leaves its lower bound or reaches its upper one, as fractions
    over = torch.cat([lowest, highest], -1).unsqueeze(-1)
    under = torch.cat([parts, parts], -1).unsqueeze(-1)
    beside = (parts.unsqueeze(-2), lowest.unsqueeze(-2), highest.unsqueeze(-2))
    filled = (over * beside[0]).clamp(beside[1] * under, beside[2] * under).sum(-1)
    fits = filled <= total * under.squeeze(-1)
    above = over * under.mT >= over.mT * under
    last = (fits & (above | ~fits.unsqueeze(-2)).all(-1)).int().argmax(-1, keepdim=True)
    over, under = over.squeeze(-1).gather(-1, last), under.squeeze(-1).gather(-1, last)
    # above that level, heads within their bounds rise in proportion until the total is reached
    rising = (lowest * under <= over * parts) & (over * parts < highest * under)
    still = torch.where(over * parts < lowest * under, lowest, highest).masked_fill(rising, 0)
    share = parts * (total - still.sum(-1, keepdim=True))
    per = (parts * rising).sum(-1, keepdim=True).clamp(min=1)
    whole = torch.where(rising, share // per, still)
    remainders = torch.where(rising, share % per, 0)
    order = remainders.sort(descending=True, stable=True).indices
    missing = total - whole.sum(-1, keepdim=True)
    one_more = torch.arange(parts.shape[-1], device=parts.device) < missing
    return whole.scatter_add(-1, order, one_more.long())
