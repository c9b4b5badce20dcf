"""The ideal objective: how well a kept set covers the importance of the whole context."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import nonnegative_at_most
from reference.contract.types import Importance, Whole
from reference.precision import widen


def covering(kernel: Tensor) -> None:
    """Refuse a kernel that covers nothing around some token."""
    near = kernel[: len(kernel) // 2 + 1]  # the token in the middle reaches least far
    if may_read_values(near) and not bool(near.any()):
        raise ValueError("kernel must sum to > 0 around every token, got 0.0")


@requires(covering)
def coverage_weights(
    scores: Importance[Tensor, "*heads tokens"], kernel: Importance[Tensor, "tokens"]
) -> Float[Tensor, "*heads tokens tokens"]:
    r"""Spread each token's importance over the places it covers.

    $$w_{i,j} = s_j \cdot \frac{\mathcal{K}(|i - j|)}{Z_j},
      \qquad Z_j = \sum_{k \in V} \mathcal{K}(|j - k|)$$

    Args:
        scores: importance $s$.
        kernel: $\mathcal{K}(0), \dots, \mathcal{K}(N - 1)$.

    Returns:
        The weights $w$ with $i$ on the last axis but one and $j$ on the last, in float32, or
        float64 where `scores` are. Column $j$ sums to $s_j$, also at the two ends, where $Z_j$
        has fewer terms.

    Source:
        HubKV-5, HubKV-Def1. As printed (Eq. 5, Def. 1).

    Reading:
        E-U31: $Z_j = 0$ leaves the weight undefined and is refused.
    """
    scores = widen(scores)
    kernel = kernel.to(scores.dtype)
    tokens = scores.shape[-1]
    weights = scores.new_zeros(*scores.shape, tokens)
    for j in range(tokens):
        distances = (torch.arange(tokens, device=kernel.device) - j).abs()
        spread = kernel[distances]
        weights[..., :, j] = scores[..., j, None] * (spread / spread.sum())
    return weights


def coverage(
    weights: Importance[Tensor, "*heads tokens tokens"], kept: Bool[Tensor, "*heads tokens"]
) -> Float[Tensor, "*heads"]:
    r"""Add up, over all places, the best coverage that a kept token gives.

    $$F_{sub}(S) = \sum_{i \in V} \max_{j \in S} w_{i,j}$$

    Args:
        weights: the coverage $w_{i,j}$ that token $j$ gives to place $i$.
        kept: true at the tokens of $S$.

    Returns:
        The utility $F_{sub}(S)$ of each head, in float32, or float64 where `weights` are. One
        token alone is worth its score; nothing is worth 0.

    Source:
        HubKV-4, HubKV-Def1. As printed (Eq. 4, Def. 1).

    Reading:
        E-U30: the maximum over the empty set is 0.
    """
    return _covered(widen(weights), kept).sum(-1)


def marginal_gain(
    weights: Importance[Tensor, "*heads tokens tokens"], kept: Bool[Tensor, "*heads tokens"]
) -> Float[Tensor, "*heads tokens"]:
    r"""Say what each token would add to a kept set.

    $$\Delta(k \mid S) = \sum_{i \in V} \max\bigl(0,\, w_{i,k} - \max_{j \in S} w_{i,j}\bigr)$$

    Args:
        weights: the coverage $w_{i,j}$ that token $j$ gives to place $i$.
        kept: true at the tokens of $S$.

    Returns:
        The gain $\Delta(k \mid S)$ of each token $k$, in float32, or float64 where `weights` are.
        It is 0 for the members of $S$, and the score of $k$ where $S$ is empty.

    Source:
        HubKV-3.2a. As printed (§3.2).

    Reading:
        E-U30: the maximum over the empty set is 0.
    """
    weights = widen(weights)
    covered = _covered(weights, kept)
    gains = torch.zeros_like(covered)
    for k in range(weights.shape[-1]):
        gains[..., k] = torch.clamp(weights[..., :, k] - covered, min=0).sum(-1)
    return gains


def placed(hub: int, tokens: int) -> None:
    """Refuse a hub beyond the last token."""
    nonnegative_at_most("hub", hub, tokens - 1)


@requires(placed)
def overlap(
    weights: Importance[Tensor, "*heads tokens tokens"], hub: Whole
) -> Float[Tensor, "*heads tokens"]:
    r"""Say which share of each token's coverage a hub gives already.

    $$\rho(i, h) = \frac{1}{s_i} \sum_{x \in V} \min(w_{x,i},\, w_{x,h}),
      \qquad s_i = \sum_{x \in V} w_{x,i}$$

    Args:
        weights: the coverage $w_{x,i}$ that token $i$ gives to place $x$.
        hub: position of the hub $h$, the same in every head.

    Returns:
        The overlap $\rho(i, h)$ of each token $i$ with the hub, in [0, 1], in float32, or float64
        where `weights` are. The hub overlaps itself fully, whatever its score above 0.

    Source:
        HubKV-Prop2. As printed (Prop. 2); that $s_i$ is the sum of its coverage follows from Prop.
        1.

    Reading:
        E-U30: a token of score 0 covers nothing, so that 0/0 counts as no overlap.
    """
    weights = widen(weights)
    shares = weights.new_zeros(weights.shape[:-1])
    for i in range(weights.shape[-1]):
        score = weights[..., :, i].sum(-1)
        shared = torch.minimum(weights[..., :, i], weights[..., :, hub]).sum(-1)
        shares[..., i] = torch.where(score > 0, shared / score, 0)  # 0 / 0: it covers nothing
    return shares


def _covered(weights: Tensor, kept: Tensor) -> Tensor:
    """Return the maximum of w_ij over the kept j, for each place i; 0 where nothing is kept."""
    best = weights.new_zeros(weights.shape[:-1])
    for j in range(weights.shape[-1]):
        better = torch.maximum(best, weights[..., :, j])
        best = torch.where(kept[..., j, None], better, best)
    return best
