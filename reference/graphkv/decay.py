"""Signals along the graph: a source decays, enhances or evicts the tokens most like it."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract import checks
from reference.contract.types import Finite, Importance, Share, Whole
from reference.precision import widen

Rule = Literal["product", "sequential", "sum"]
"""How the sources that reach one token combine in a round."""


def decay(
    scores: Importance[Tensor, "*heads tokens"],
    weights: Finite[Tensor, "*heads sources tokens"],
    neighbours: Bool[Tensor, "*heads sources tokens"],
    rounds: Whole = 1,
    strength: Share = 1.0,
    rule: Rule = "product",
) -> Float[Tensor, "*heads tokens"]:
    r"""Lower each score by its similarity to the sources that reach it, in rounds.

    $$s_j^{(t)} = s_j^{(t-1)} \prod_{o_i \in O_{\mathrm{source}},\; o_j \in N(o_i)}
      (1 - \alpha\, e_{ij})$$

    Args:
        scores: importance $s^{(0)}$.
        weights: edges $e$; a negative one raises the score.
        neighbours: true where token $j$ is in $N(o_i)$.
        rounds: number of rounds $T$.
        strength: decay strength $\alpha$.
        rule: how the sources that reach one token combine in a round: `product`, above;
            `sequential`, each overwrites what the one before wrote, so only the last counts;
            `sum`, their losses add: $s_j (1 - \sum_i \alpha\, e_{ij})$.

    Returns:
        The scores $s^{(T)}$, bit for bit `scores` where no source reaches.

    Raises:
        ValueError: a score is out of range.

    Source:
        GraphKV-4, GraphKV-5, GraphKV-Alg2, GraphKV-6.3, GraphKV-7.2. As printed (Eq. 5) where
        $\alpha$ is 1; the coefficient, missing in Eq. 4, is `strength` (E-G1), and Algorithm 2
        combines sources otherwise (E-G2).

    Reading:
        E-G1: the missing coefficient is `strength`. E-G2: Equation 5, Algorithm 2 and Figure 3
        combine sources in three ways; the last source is the last row. E-G4: negative edges
        amplify. E-G6: one graph for all rounds. E-G17: what no source reaches carries over.
    """
    after = widen(scores).clone()
    for _ in range(rounds):
        before = after
        for i in range(weights.shape[-2]):
            loss = strength * widen(weights[..., i, :])
            if rule == "product":
                lowered = after * (1 - loss)
            elif rule == "sequential":
                lowered = before * (1 - loss)
            else:
                lowered = after - before * loss
            after = torch.where(neighbours[..., i, :], lowered, after)
    after = after.to(scores.dtype)
    checks.refuse_overflow("scores", after.abs())
    return after


def enhance(
    scores: Importance[Tensor, "*heads tokens"],
    weights: Finite[Tensor, "*heads sources tokens"],
    neighbours: Bool[Tensor, "*heads sources tokens"],
    rounds: Whole = 1,
    strength: Share = 1.0,
) -> Float[Tensor, "*heads tokens"]:
    r"""Raise each score by its similarity to the sources that reach it, in rounds.

    $$s_j^{(t)} = s_j^{(t-1)} \prod_{o_i \in O_{\mathrm{source}},\; o_j \in N(o_i)}
      (1 + \alpha\, e_{ij})$$

    Args:
        scores: importance $s^{(0)}$.
        weights: edges $e$.
        neighbours: true where token $j$ is in $N(o_i)$.
        rounds: number of rounds $T$.
        strength: strength $\alpha$ of the signal.

    Returns:
        The scores $s^{(T)}$, bit for bit `scores` where no source reaches.

    Raises:
        ValueError: a score is out of range.

    Source:
        GraphKV-7.2. In words (§7.2): "enhanced signal (+)". The product is that of the decay with
        the sign turned (E-G17).

    Reading:
        E-G17: the signal is named "+" and not defined; the product of the decay with the sign
        turned.
    """
    enhanced = widen(scores).clone()
    for _ in range(rounds):
        for i in range(weights.shape[-2]):
            gain = strength * widen(weights[..., i, :])
            enhanced = torch.where(neighbours[..., i, :], enhanced * (1 + gain), enhanced)
    enhanced = enhanced.to(scores.dtype)
    checks.refuse_overflow("scores", enhanced.abs())
    return enhanced


def banish(
    scores: Importance[Tensor, "*heads tokens"],
    neighbours: Bool[Tensor, "*heads sources tokens"],
    rounds: Whole = 1,
) -> Float[Tensor, "*heads tokens"]:
    r"""Send every neighbour of a source to the end of the ranking.

    $$s_j^{(t)} = -\infty \quad \text{where } o_j \in N(o_i) \text{ for some }
      o_i \in O_{\mathrm{source}}$$

    Args:
        scores: importance $s^{(0)}$.
        neighbours: true where token $j$ is in $N(o_i)$.
        rounds: number of rounds $T$.

    Returns:
        The scores $s^{(T)}$; rounds after the first change nothing.

    Source:
        GraphKV-7.2. In words (§7.2): "evicting all nodes connected to the source node". Printed is
        the signal $-\infty$ (E-G17).

    Reading:
        E-G17: the evicted signal reaches every neighbour, whatever its edge.
    """
    banished = scores.clone()
    for _ in range(rounds):
        for i in range(neighbours.shape[-2]):
            banished = banished.masked_fill(neighbours[..., i, :], -torch.inf)
    return banished
