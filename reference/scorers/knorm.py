"""KNorm: tokens whose keys are short are attended to most."""

import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import left_padded
from reference.contract.types import Finite
from reference.precision import widen
from reference.scorers._padding import valid_or_all
from reference.scorers.scored import Scored


@requires(left_padded)
def knorm(
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    shift: bool = False,
) -> Scored:
    r"""Score each token by the length of its key: the shorter, the better.

    $$s_j = -\lVert k_j \rVert_2$$

    Args:
        keys: $k_j$, as the cache holds them.
        valid: false at padding, on the left of a row.
        shift: add the largest length of the head, so that the least score is 0.

    Returns:
        The scores of each key head in float32, or float64 where `keys` is; no token is
        protected. A token's score is its own, so that chunks score as the whole does, unless
        `shift` compares them.

    Source:
        GraphKV-KNorm. From elsewhere: Devoto et al.; the paper names KNorm as the $L_2$ norm of
        keys, without the sign (E-G5).

    Reading:
        C3, E-G5: negative scores as published; what must not be negative takes `shift`, whose
        maximum runs over the real tokens of a head.
    """
    lengths = widen(keys).norm(dim=-1)
    real = valid_or_all(valid, keys)[..., None, :].expand(lengths.shape)
    lengths = torch.where(real, lengths, 0)
    longest = lengths.amax(-1, keepdim=True) if shift and keys.shape[-2] else 0
    scores = torch.where(real, longest - lengths, 0)
    return Scored(scores, torch.zeros_like(real))
