"""What every scorer returns."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class Scored(NamedTuple):
    """Raw scores, and the tokens that are kept whatever their scores.

    Higher is better. The scores are as the scorer's formula gives them: finite, and without a
    sentinel at protected tokens. Padding scores 0 and is not protected; whoever selects leaves it
    out by the same `valid` mask that the scorer was given.

    Source:
        HubKV-11, GraphKV-4.1.
    """

    scores: Float[Tensor, "*batch kv_heads tokens"]
    protected: Bool[Tensor, "*batch kv_heads tokens"]
