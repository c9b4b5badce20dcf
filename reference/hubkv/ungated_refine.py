"""HubKV without its gate: the full correction at every ratio, an ablation."""

from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.types import (
    FiniteAbove0,
    FiniteNonNegative,
    Importance,
    NonNegative,
    OpenFraction,
    Whole,
)
from reference.hubkv.discount import smd
from reference.hubkv.head_calibration import bounded, calibrate, head_weights, selectivity
from reference.precision import widen


@requires(bounded)
def ungated_refine(
    scores: Importance[Tensor, "*layers heads tokens"],
    protected: Bool[Tensor, "*layers heads tokens"] | None = None,
    radius: Whole = 2,
    gamma: OpenFraction = 0.5,
    tau: FiniteNonNegative = 0.5,
    minimum: FiniteAbove0 = 0.8,
    maximum: float = 1.2,
    epsilon: NonNegative = 1e-6,
) -> Float[Tensor, "*layers heads tokens"]:
    r"""Discount and calibrate the scores at full strength, whatever the compression.

    $$z_{\ell,h,i} = \begin{cases} 1 & P_{\ell,h,i} = 1 \\
      \beta_{\ell,h}\, \tilde s_{\ell,h,i} & P_{\ell,h,i} = 0 \end{cases}$$

    Args:
        scores: importance $s$.
        protected: the mask $P$: true at tokens outside the content region.
        radius: half-width $k$ of the hub window.
        gamma: discount factor $\gamma$.
        tau: exponent $\tau$ of the head weights.
        minimum: lower bound of the head weights.
        maximum: upper bound of the head weights, at least `minimum`.
        epsilon: $\epsilon$ of the selectivity.

    Returns:
        The corrected scores in the dtype of `scores`, rounded once: what `hubkv_refine` gives at
        ratio 1.

    Source:
        HubKV-B. In words (B): "applies the local hub discounting and head-wise calibration without
        the compression-ratio gate".
    """
    content = widen(scores)
    if protected is not None:
        content = content.masked_fill(protected, 0)
    weights = head_weights(selectivity(content, protected, epsilon), tau, minimum, maximum)
    corrected = calibrate(smd(content, radius, gamma, protected), weights)
    if protected is not None:
        corrected = corrected.masked_fill(protected, 1)
    return corrected.to(scores.dtype)
