"""KNorm: tokens whose keys are short are attended to most."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers.scored import Scored


def knorm(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    shift: bool = False,
) -> Scored:
    r"""Score each token by the length of its key: the shorter, the better.

    $$s_j = -\lVert k_j \rVert_2$$

    Args:
        keys: $k_j$, finite, as the cache holds them.
        valid: false at padding, on the left of a row.
        shift: add the largest length of the head, so that the least score is 0.

    Returns:
        The scores of each key head in float32, or float64 where `keys` is; no token is
        protected. A token's score is its own, so that chunks score as the whole does, bit for
        bit, unless `shift` compares them.

    Raises:
        TypeError: `keys` is not floating point or `valid` not boolean.
        ValueError: a key is NaN or infinite or too long for the dtype of the scores, `keys` has
            fewer than 3 axes, `valid` another shape than `keys` without heads and width, or a
            false after a true.

    Source:
        GraphKV-KNorm.

    Reading:
        C3, E-G5: negative scores as published; what must not be negative takes `shift`, whose
        maximum runs over the real tokens of a head.
    """
    errors.floating("keys", keys, 3)
    errors.finite("keys", keys)
    rows = (*keys.shape[:-3], keys.shape[-2])
    valid = keys.new_ones(rows, dtype=torch.bool) if valid is None else valid
    refuse.padding(valid, rows)
    keys = widen(keys)
    squares = keys.new_zeros(keys.shape[:-1])
    for c in range(keys.shape[-1]):
        squares += keys[..., c] ** 2
    errors.in_range("keys", squares)
    real = valid[..., None, :].expand(squares.shape)
    lengths = torch.where(real, squares.sqrt(), 0)
    longest = lengths.amax(-1, keepdim=True) if shift and keys.shape[-2] else 0
    scores = torch.where(real, longest - lengths, 0)
    return Scored(scores, torch.zeros_like(real))
