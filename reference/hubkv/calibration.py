"""Head calibration: a head that singles tokens out speaks louder than one that spreads evenly."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import errors
from reference.hubkv import errors as refuse
from reference.precision import widen


def selectivity(
    scores: Float[Tensor, "*heads tokens"],
    protected: Bool[Tensor, "*heads tokens"] | None = None,
    epsilon: float = 1e-6,
) -> Float[Tensor, "*heads"]:
    r"""Measure how unevenly each head spreads its scores: the coefficient of variation.

    $$c_{\ell,h} = \frac{\sigma_{\ell,h}}{\mu_{\ell,h} + \epsilon}$$

    Args:
        scores: importance $s$, finite and at least 0.
        protected: true at tokens that $\mu$ and $\sigma$ leave out.
        epsilon: $\epsilon$, at least 0; keeps a head of nearly no score from dividing by 0.

    Returns:
        The selectivity $c$ of each head, in float32 (float64 for float64 scores). It is exactly 0
        for a head of equal scores, a head of zeros, and a head without content tokens.

    Raises:
        TypeError: `scores` is not floating point or `protected` not boolean.
        ValueError: a score is negative, NaN, infinite or too large to be squared, `protected` has
            another shape than `scores`, or `epsilon` is negative.

    Source:
        HubKV-8, HubKV-12.

    Reading:
        E-U7, E-U25: $\sigma$ is the population deviation (it divides by the number of content
        tokens), of the raw scores; the paper gives no value for $\epsilon$, $10^{-6}$ is ours.
    """
    errors.importance("scores", scores)
    errors.non_negative("epsilon", epsilon)
    if protected is not None:
        errors.boolean("protected", protected, scores.shape)
    wide = widen(scores)
    variation = wide.new_zeros(scores.shape[:-1])
    for head in product(*map(range, scores.shape[:-1])):
        content = wide[head] if protected is None else wide[head][~protected[head]]
        if len(content) == 0:
            continue
        # measured from the lowest score, so that equal scores deviate by exactly 0
        low = content.min()
        rise = (content - low).sum() / len(content)
        deviation = (((content - low - rise) ** 2).sum() / len(content)).sqrt()
        mean = low + rise
        if mean + epsilon > 0:
            variation[head] = deviation / (mean + epsilon)
    errors.in_range("scores", variation)
    return variation


def bounded(name: str | None, minimum: float, maximum: float) -> None:
    """Refuse an upper bound below the lower one, of a function or of its settings `name`."""
    if not maximum >= minimum:
        which = f"{name}.maximum" if name else "maximum"
        raise ValueError(f"{which} must be >= minimum, which is {minimum}, got {maximum}")


def head_weights(
    selectivity: Float[Tensor, "*layers heads"],
    tau: float = 0.5,
    minimum: float = 0.8,
    maximum: float = 1.2,
) -> Float[Tensor, "*layers heads"]:
    r"""Weigh the heads of a layer by their selectivity, within bounds.

    $$\beta_{\ell,h} = \mathrm{clip}\Bigl(\Bigl(\frac{c_{\ell,h}}{\bar c_\ell}\Bigr)^{\tau},
      \beta_{\min}, \beta_{\max}\Bigr)$$

    Args:
        selectivity: $c$, finite and at least 0; $\bar c_\ell$ is its mean over the last axis.
        tau: exponent $\tau$, at least 0: how strongly the weights follow the selectivity.
        minimum: lower bound $\beta_{\min}$, finite and above 0.
        maximum: upper bound $\beta_{\max}$, at least `minimum`; infinity for none.

    Returns:
        The head weights $\beta$, in float32 (float64 for float64 selectivity). Heads that are
        equally selective all weigh exactly 1, if the bounds admit it.

    Raises:
        TypeError: `selectivity` is not floating point.
        ValueError: a selectivity is negative, NaN or infinite, `tau` is negative, `minimum` is not
            finite and above 0, or `maximum` is below `minimum`.

    Source:
        HubKV-9.

    Reading:
        E-U9: where no head of a layer is selective ($\bar c_\ell = 0$) the quotient is read as 1.
    """
    errors.importance("selectivity", selectivity)
    errors.non_negative("tau", tau)
    refuse.clip_bounds("minimum", minimum, "maximum", maximum)
    wide = widen(selectivity)
    if wide.shape[-1] == 0:
        return wide.clone()
    # measured from the lowest, so that the mean of equal heads is exactly theirs
    exact = wide.double()
    low = exact.amin(-1, keepdim=True)
    # divided before the sum, which therefore cannot overflow
    mean = low + ((exact - low) / wide.shape[-1]).sum(-1, keepdim=True)
    quotient = torch.where(mean > 0, exact / mean, 1.0).to(wide.dtype)
    return (quotient**tau).clamp(minimum, maximum)


def calibrate(
    scores: Float[Tensor, "*heads tokens"],
    weights: Float[Tensor, "*heads"],
) -> Float[Tensor, "*heads tokens"]:
    r"""Multiply every score of a head by the head's weight.

    $$u_{\ell,h,i} = \beta_{\ell,h}\, \tilde s_{\ell,h,i}$$

    Args:
        scores: discounted importance $\tilde s$, finite and at least 0.
        weights: head weights $\beta$, finite and at least 0, one for each head.

    Returns:
        The calibrated scores $u$ in the dtype of `scores`, rounded once: a weight of exactly 1
        leaves its head bit for bit as it was.

    Raises:
        TypeError: `scores` or `weights` is not floating point.
        ValueError: a score or a weight is negative, NaN or infinite, or `weights` has another
            shape than `scores` without its last axis.

    Source:
        HubKV-9.
    """
    errors.importance("scores", scores)
    errors.floating("weights", weights, axes=0)
    errors.shaped("weights", weights, scores.shape[:-1])
    errors.importance("weights", weights, axes=0)
    return (widen(weights).unsqueeze(-1) * widen(scores)).to(scores.dtype)
