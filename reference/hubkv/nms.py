"""Non-maximum suppression of scores, a diagnostic: how picks spread once peaks stand alone."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.types import Importance, Ratio, Whole
from reference.hubkv.discount import hub_mask


class NmsSettings(NamedTuple):
    """What `nms` takes beside the scores, for a pipeline to pass on.

    Source:
        HubKV-Obs3.
    """

    radius: Whole = 3
    factor: Ratio = 0.3


def nms(
    scores: Importance[Tensor, "*heads tokens"], radius: Whole = 3, factor: Ratio = 0.3
) -> Float[Tensor, "*heads tokens"]:
    r"""Suppress all but the local maxima: the diagnostic that came before soft discounting.

    $$\hat s_i = \begin{cases} s_i & i = \arg\max_{|j - i| \le k} s_j \\
      \phi\, s_i & \text{otherwise} \end{cases}$$

    Args:
        scores: importance $s$.
        radius: half-width $k$ of the neighbourhood: 3 is the paper's size of 7.
        factor: what is left of a suppressed score, $\phi$.

    Returns:
        The suppressed scores $\hat s$, bit for bit `scores` at the local maxima.

    Source:
        HubKV-Obs3. In words (I): "Tokens that are local maxima keep their original importance
        score, while non-maximal neighbors are multiplied by 0.3".

    Reading:
        E-U20: a preset of its own, not the method's radius 2 and factor 0.5; of a plateau, the
        lowest index is the maximum, as everywhere.
    """
    return torch.where(hub_mask(scores, radius), scores, factor * scores)
