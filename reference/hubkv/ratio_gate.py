"""The ratio gate: correct the scores only as hard as the cache is compressed."""

from jaxtyping import Float
from torch import Tensor

from reference.contract.types import Above0, Finite, Ratio
from reference.precision import widen


def gate(
    scores: Finite[Tensor, "*heads tokens"],
    corrected: Finite[Tensor, "*heads tokens"],
    ratio: Ratio,
    power: Above0 = 2.0,
) -> Float[Tensor, "*heads tokens"]:
    r"""Mix raw and corrected scores by the compression ratio.

    $$\lambda = r^p, \qquad z_i = (1 - \lambda)\, s_i + \lambda\, u_i$$

    Args:
        scores: raw importance $s$.
        corrected: calibrated importance $u$.
        ratio: fraction $r$ of the entries that will be removed.
        power: gate exponent $p$: the larger, the later the correction sets in.

    Returns:
        The gated scores $z$ in the dtype of `scores`, rounded once: `scores` at ratio 0, and
        `corrected` at ratio 1.

    Source:
        HubKV-10, HubKV-15. As printed (Eq. 10).
    """
    strength = ratio**power
    mixed = (1 - strength) * widen(scores) + strength * widen(corrected)
    return mixed.to(scores.dtype)
