"""Budgets that differ by head, an alternative to correcting the scores."""

from fractions import Fraction
from itertools import product
from typing import Literal

import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import affordable, covers
from reference.contract.types import Importance, NonNegative, Whole
from reference.hubkv.head_calibration import selectivity


def layer_room(keep: int, protected: Tensor | None) -> None:
    """Refuse a mean budget that leaves no room for the protected tokens of some layer."""
    if protected is None or not may_read_values(protected):
        return
    heads, most = protected.shape[-2], int(protected.sum((-2, -1)).max())
    covers(keep, most, heads)


@requires(affordable, layer_room)
def head_budgets(
    scores: Importance[Tensor, "*layers heads tokens"],
    keep: Whole,
    rule: Literal["waterfill", "entropy", "selectivity", "hybrid"],
    protected: Bool[Tensor, "*layers heads tokens"] | None = None,
    epsilon: NonNegative = 1e-6,
) -> Int64[Tensor, "*layers heads"]:
    r"""Divide a layer's budget among its heads, more to heads that seem to need more.

    $$B_h = \mathrm{round}\bigl(\mathrm{clip}(t\, w_h,\, |P_h|,\, T)\bigr),
      \qquad \sum_h B_h = H B$$

    Args:
        scores: importance $s$.
        keep: mean budget $B$ of a head, from 0 to the number of tokens.
        rule: "selectivity" takes $w_h = c_h$; "entropy" $w_h = e^{-\sum_i p_i \ln p_i}$ with
            $p_i = s_i / \sum_j s_j$; "hybrid" the mean of the two, each divided by its sum over
            the heads; "waterfill" counts each head's entries among the best by $p$ of all heads.
        protected: true at tokens that every head keeps; $w$ and $p$ are over the others.
        epsilon: $\epsilon$ of the selectivity.

    Returns:
        The budgets $B_h$, summing to the number of heads times `keep` in every layer, none below
        a head's protected tokens or above its tokens. Heads that are alike get the same, give or
        take one place.

    Source:
        HubKV-B. In words (B): "reallocating per-head budgets by waterfilling, entropy, selectivity,
        or a hybrid score". The formula and the four rules are ours (E-U24); "waterfill" counts the
        best entries instead.

    Reading:
        E-U24: the paper names the four rules and defines none. Weights are computed in float64 and
        rounded to whole parts in $2^{24}$, at least one; $t$ is the level at which the budgets add
        up, and largest remainders round them. Ties in "waterfill" go in turn, not to one head.
    """
    tokens = scores.shape[-1]
    if protected is None:
        protected = torch.zeros_like(scores, dtype=torch.bool)
    budgets = torch.zeros(scores.shape[:-1], dtype=torch.int64, device=scores.device)
    for layer in product(*map(range, scores.shape[:-2])):
        heads = [
            row[~aside].double() for row, aside in zip(scores[layer], protected[layer], strict=True)
        ]
        lowest = [tokens - len(content) for content in heads]
        total = keep * len(heads)
        if rule == "waterfill":
            divided = _waterfill(heads, total - sum(lowest))
            divided = [low + extra for low, extra in zip(lowest, divided, strict=True)]
        else:
            parts = _parts(heads, rule, epsilon)
            divided = _apportion(parts, lowest, [tokens] * len(heads), total)
        budgets[layer] = budgets.new_tensor(divided)
    return budgets


def _shares(content: Tensor) -> Tensor:
    """Return the scores over their sum; a head of zeros has equal shares."""
    total = content.sum()
    return content / total if total > 0 else torch.full_like(content, 1 / max(1, len(content)))


def _waterfill(heads: list[Tensor], places: int) -> list[int]:
    """Count each head's entries among the `places` best shares of all heads."""
    pool = [
        (-share, rank, head)
        for head, content in enumerate(heads)
        for rank, share in enumerate(_shares(content).sort(descending=True).values.tolist())
    ]
    winners = [head for _, _, head in sorted(pool)[:places]]
    return [winners.count(head) for head in range(len(heads))]


def _parts(heads: list[Tensor], rule: str, epsilon: NonNegative) -> list[int]:
    """Return each head's weight as whole parts in 2^24 of the layer's, at least one."""
    spread = [selectivity(content, epsilon=epsilon).item() for content in heads]
    width = [
        torch.special.entr(_shares(content)).sum().exp().item() if len(content) else 0.0
        for content in heads
    ]
    weights = {
        "selectivity": _fractions(spread),
        "entropy": _fractions(width),
        "hybrid": [(a + b) / 2 for a, b in zip(_fractions(spread), _fractions(width), strict=True)],
    }[rule]
    return [max(1, round(weight * 2**24)) for weight in weights]


def _fractions(weights: list[float]) -> list[float]:
    """Return the weights over their sum; equal where they are all 0."""
    total = sum(weights)
    return [weight / total if total > 0 else 1 / len(weights) for weight in weights]


def _apportion(parts: list[int], lowest: list[int], highest: list[int], total: int) -> list[int]:
    """Divide `total` in proportion to `parts` within bounds, by largest remainders."""
    bounds = list(zip(parts, lowest, highest, strict=True))

    def quotas_at(level: Fraction) -> list[Fraction]:
        return [min(max(level * part, Fraction(low)), Fraction(high)) for part, low, high in bounds]

    levels = {Fraction(bound, part) for part, low, high in bounds for bound in (low, high)}
    level = max((x for x in levels if sum(quotas_at(x)) <= total), default=Fraction(0))
    rising = sum(part for part, low, high in bounds if low <= level * part < high)
    if rising:
        level += (total - sum(quotas_at(level), Fraction(0))) / rising
    quotas = quotas_at(level)
    whole = [int(quota) for quota in quotas]
    remainders = [low - quota for quota, low in zip(quotas, whole, strict=True)]
    by_remainder = sorted(range(len(parts)), key=remainders.__getitem__)
    for head in by_remainder[: total - sum(whole)]:
        whole[head] += 1
    return whole
