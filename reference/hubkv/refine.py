"""HubKV from end to end: hubs, discount, head weights and gate, around the protected tokens."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.types import (
    Above0,
    Finite,
    FiniteAbove0,
    FiniteNonNegative,
    Importance,
    NonNegative,
    OpenFraction,
    Ratio,
    Whole,
)
from reference.hubkv.discount import smd
from reference.hubkv.head_calibration import bounded, calibrate, head_weights, selectivity
from reference.hubkv.ratio_gate import gate
from reference.precision import widen


class HubSettings(NamedTuple):
    """What `hubkv_refine` takes beside the scores, for a pipeline to pass on; the paper's values.

    Source:
        HubKV-13.
    """

    radius: Whole = 2
    gamma: OpenFraction = 0.5
    tau: FiniteNonNegative = 0.5
    minimum: FiniteAbove0 = 0.8
    maximum: float = 1.2
    power: Above0 = 2.0
    epsilon: NonNegative = 1e-6
    rules = (bounded,)


def protected_mask(
    tokens: Whole, sinks: Whole = 4, recent: Whole | None = None
) -> Bool[Tensor, "tokens"]:
    r"""Mark the tokens that are kept whatever their score: the first few and the latest.

    $$P_i = \mathbb{I}[\, i \in \mathcal{P}_{\mathrm{sink}} \cup \mathcal{P}_{\mathrm{recent}} \,]$$

    Args:
        tokens: length $T$ of the sequence.
        sinks: how many tokens at the start are attention sinks.
        recent: how many tokens at the end are the recent window; by default $\lfloor 0.02\,T
            \rfloor$.

    Returns:
        The protected mask $P$ of one head; every head has the same. All of it is true where the
        two stretches meet.

    Source:
        HubKV-11. As printed (Eq. 11).

    Reading:
        E-U13, E-U14: the same defaults serve every base scorer; a mask that exceeds a budget is
        refused by the selection, not here.
    """
    recent = tokens // 50 if recent is None else recent
    return at_ends(torch.arange(tokens), tokens, sinks, recent)


def at_ends(positions: Tensor, tokens: int | Tensor, sinks: int, recent: int | Tensor) -> Tensor:
    """Mark positions among the first `sinks` or the last `recent` of so many tokens."""
    return (positions < sinks) | (positions >= tokens - recent)


@requires(bounded)
def hubkv_refine(
    scores: Importance[Tensor, "*layers heads tokens"],
    ratio: Ratio,
    protected: Bool[Tensor, "*layers heads tokens"] | None = None,
    radius: Whole = 2,
    gamma: OpenFraction = 0.5,
    tau: FiniteNonNegative = 0.5,
    minimum: FiniteAbove0 = 0.8,
    maximum: float = 1.2,
    power: Above0 = 2.0,
    epsilon: NonNegative = 1e-6,
) -> Float[Tensor, "*layers heads tokens"]:
    r"""Refine importance scores by everything HubKV does, in its order.

    $$z_{\ell,h,i} = \begin{cases} 1 & P_{\ell,h,i} = 1 \\
      (1 - \lambda)\, s_{\ell,h,i} + \lambda\, u_{\ell,h,i} & P_{\ell,h,i} = 0 \end{cases}$$

    Args:
        scores: importance $s$; the heads of a layer share the last axis but one, what stands before
            it is refined row by row.
        ratio: fraction $r$ of the entries that will be removed.
        protected: the mask $P$: true at tokens outside the content region.
        radius: half-width $k$ of the hub window.
        gamma: discount factor $\gamma$.
        tau: exponent $\tau$ of the head weights.
        minimum: lower bound of the head weights.
        maximum: upper bound of the head weights, at least `minimum`.
        power: gate exponent $p$.
        epsilon: $\epsilon$ of the selectivity.

    Returns:
        The refined scores $z$ in the dtype of `scores`, rounded once after the last step. The 1 of
        a protected token is for show: content can exceed it, so select by the mask.

    Source:
        HubKV-11, HubKV-12, HubKV-13, HubKV-15. As printed (Eq. 13).

    Reading:
        E-U1, E-U2, E-U8, E-U25: protected tokens read 1 as printed, which is not the maximum;
        scores may exceed 1, but below 0 they are refused; head statistics are of raw scores.
    """
    content = widen(scores)
    if protected is not None:
        content = content.masked_fill(protected, 0)
    discounted = smd(content, radius, gamma, protected)
    weights = head_weights(selectivity(content, protected, epsilon), tau, minimum, maximum)
    refined = gate(content, calibrate(discounted, weights), ratio, power)
    if protected is not None:
        refined = refined.masked_fill(protected, 1)
    return refined.to(scores.dtype)


def shift_scores(scores: Finite[Tensor, "*heads tokens"]) -> Float[Tensor, "*heads tokens"]:
    r"""Shift the scores of each head so that its lowest is 0.

    $$s'_{h,i} = s_{h,i} - \min_j s_{h,j}$$

    Args:
        scores: importance $s$ of either sign.

    Returns:
        The shifted scores $s'$, at least 0, in the dtype and the order of `scores`.

    Source:
        HubKV-Prop3. Ours: for base scorers below 0; print has scores in [0, 1] (E-U8).

    Reading:
        E-U8: a step of ours, which gives base scorers with negative scores the premise
        $s_i \ge 0$ of the proposition; the paper has scores in [0, 1].
    """
    return scores - scores.amin(-1, keepdim=True) if scores.numel() else scores.clone()
