"""Head calibration: heads whose scores vary more get a larger weight."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.types import FiniteAbove0, FiniteNonNegative, Importance, NonNegative
from reference.precision import widen


def selectivity(
    scores: Importance[Tensor, "*heads tokens"],
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    epsilon: NonNegative = 1e-6,
) -> Float[Tensor, "*heads"]:
    r"""Measure how unevenly each head spreads its scores: the coefficient of variation.

    $$c_{\ell,h} = \frac{\sigma_{\ell,h}}{\mu_{\ell,h} + \epsilon}$$

    Args:
        scores: importance $s$.
        protected: true at tokens that $\mu$ and $\sigma$ leave out.
        epsilon: $\epsilon$; keeps a head of nearly no score from dividing by 0.

    Returns:
        The selectivity $c$ of each head, in float32 (float64 for float64 scores). It is 0 for a
        head of equal scores, a head of zeros, and a head without content tokens.

    Source:
        HubKV-8, HubKV-12. As printed (Eq. 8); that scores are the raw ones, that the deviation
        divides by the number of content tokens, and the value of $\epsilon$ are ours (E-U7, E-U25).

    Reading:
        E-U7, E-U25: $\sigma$ is the population deviation (it divides by the number of content
        tokens), of the raw scores; the paper gives no value for $\epsilon$, $10^{-6}$ is ours.
    """
    wide = widen(scores)
    variation = wide.new_zeros(scores.shape[:-1])
    for head in product(*map(range, scores.shape[:-1])):
        content = wide[head] if protected is None else wide[head][~protected[head]]
        if content.any():  # of no scores and of zeros it is 0, whatever epsilon
            # from the least score, since a rounded mean lets equal scores deviate
            sigma = (content - content.min()).std(correction=0)
            variation[head] = sigma / (content.mean() + epsilon)
    return variation


def bounded(name: str | None, minimum: float, maximum: float) -> None:
    """Refuse an upper bound below the lower one."""
    if not maximum >= minimum:
        which = f"{name}.maximum" if name else "maximum"
        raise ValueError(f"{which} must be >= minimum, which is {minimum}, got {maximum}")


@requires(bounded)
def head_weights(
    selectivity: Importance[Tensor, "*layers heads"],
    tau: FiniteNonNegative = 0.5,
    minimum: FiniteAbove0 = 0.8,
    maximum: float = 1.2,
) -> Float[Tensor, "*layers heads"]:
    r"""Weigh the heads of a layer by their selectivity, within bounds.

    $$\beta_{\ell,h} = \mathrm{clip}\Bigl(\Bigl(\frac{c_{\ell,h}}{\bar c_\ell}\Bigr)^{\tau},
      \beta_{\min}, \beta_{\max}\Bigr)$$

    Args:
        selectivity: $c$; $\bar c_\ell$ is its mean over the last axis.
        tau: exponent $\tau$: how strongly the weights follow the selectivity.
        minimum: lower bound $\beta_{\min}$.
        maximum: upper bound $\beta_{\max}$, at least `minimum`; infinity for none.

    Returns:
        The head weights $\beta$, in float32 (float64 for float64 selectivity). Heads that are
        equally selective all weigh 1, if the bounds admit it.

    Source:
        HubKV-9. As printed (Eq. 9); where $\bar c_\ell$ is 0 the quotient is 1 (E-U9).

    Reading:
        E-U9: where no head of a layer is selective ($\bar c_\ell = 0$) the quotient is read as 1.
    """
    c = widen(selectivity)
    average = c.mean(-1, keepdim=True)
    share = torch.where(average > 0, c / average, 1)  # 0 / 0 where no head is selective
    return (share**tau).clamp(minimum, maximum)


def calibrate(
    scores: Importance[Tensor, "*heads tokens"],
    weights: Importance[Tensor, "*heads"],
) -> Float[Tensor, "*heads tokens"]:
    r"""Multiply every score of a head by the head's weight.

    $$u_{\ell,h,i} = \beta_{\ell,h}\, \tilde s_{\ell,h,i}$$

    Args:
        scores: discounted importance $\tilde s$.
        weights: head weights $\beta$, one for each head.

    Returns:
        The calibrated scores $u$ in the dtype of `scores`, rounded once: a weight of exactly 1
        leaves its head bit for bit as it was.

    Source:
        HubKV-9. As printed (Eq. 9).
    """
    return (widen(weights).unsqueeze(-1) * widen(scores)).to(scores.dtype)
