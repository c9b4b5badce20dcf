"""Submodular marginal discounting: a token near a stronger one is worth less."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract.types import Finite, Importance, OpenFraction, Whole


def hub_mask(
    scores: Finite[Tensor, "*heads tokens"],
    radius: Whole = 2,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
) -> Bool[Tensor, "*heads tokens"]:
    r"""Mark each token that holds the maximum of its window.

    $$M_i = \mathbb{I}\Bigl(i = \arg\max_{j \in \mathcal{W}_i} s_j\Bigr),
      \qquad \mathcal{W}_i = [i - k,\, i + k]$$

    Args:
        scores: importance $s$.
        radius: half-width $k$ of the window: a window has $2k + 1$ tokens, fewer at the two ends.
        protected: true at tokens that take no part: they neither are hubs nor suppress any.

    Returns:
        The hub mask $M$. On a plateau the lowest index is the hub.

    Source:
        HubKV-6, HubKV-12. As printed (Eq. 6); A.1 takes protected tokens out of the competition,
        and ties go to the lowest index (E-U3, E-U6).

    Reading:
        E-U3, E-U4, E-U6: ties go to the lowest index; $k$ is a half-width; protected tokens are
        masked to minus infinity before the windows are compared.
    """
    if protected is not None:
        scores = scores.masked_fill(protected, -torch.inf)
    hubs = torch.zeros_like(scores, dtype=torch.bool)
    for i in range(scores.shape[-1]):
        start = max(0, i - radius)
        window = scores[..., start : i + radius + 1]
        hubs[..., i] = start + window.argmax(-1) == i
    return hubs if protected is None else hubs & ~protected


def discount(
    scores: Importance[Tensor, "*heads tokens"],
    hubs: Bool[Tensor, "*heads tokens"],
    gamma: OpenFraction = 0.5,
) -> Float[Tensor, "*heads tokens"]:
    r"""Discount every token that is not a hub.

    $$\tilde s_i = M_i\, s_i + (1 - M_i)\,\gamma\, s_i$$

    Args:
        scores: importance $s$.
        hubs: the mask $M$ of `hub_mask`.
        gamma: discount factor $\gamma$.

    Returns:
        The discounted scores $\tilde s$, bit for bit `scores` on hubs.

    Source:
        HubKV-7. As printed (Eq. 7).
    """
    # never bool * float * s: a mask times a scalar is float32, and would promote half precision
    return torch.where(hubs, scores, gamma * scores)


def smd(
    scores: Importance[Tensor, "*heads tokens"],
    radius: Whole = 2,
    gamma: OpenFraction = 0.5,
    protected: Bool[Tensor, "*heads tokens"] | None = None,
) -> Float[Tensor, "*heads tokens"]:
    r"""Submodular marginal discounting, the core of HubKV: find the hubs, discount the rest.

    $$\tilde s_i = \begin{cases} s_i & i = \arg\max_{j \in \mathcal{W}_i} s_j \\
      \gamma\, s_i & \text{otherwise} \end{cases}$$

    Args:
        scores: importance $s$.
        radius: half-width $k$ of the window.
        gamma: discount factor $\gamma$.
        protected: true at tokens that take no part in the competition.

    Returns:
        The discounted scores $\tilde s$; protected tokens keep their raw score.

    Source:
        HubKV-6, HubKV-7, HubKV-12. As printed (Eq. 6, 7), in one line; A.1 takes protected tokens
        out of the competition, and lets them "bypass local discounting".
    """
    discounted = discount(scores, hub_mask(scores, radius, protected), gamma)
    return discounted if protected is None else torch.where(protected, scores, discounted)
