"""StreamingLLM: the first tokens and the last ones, whatever they say."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers.scored import Scored


def streaming_llm(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    sinks: int = 4,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by its position, and protect the attention sinks.

    $$s_t = t, \qquad P = \{t \le a\}, \qquad t = 1, \dots, N$$

    Args:
        keys: the cache; only its shape, dtype and device are read.
        sinks: number $a$ of first tokens that are protected, at least 0.
        valid: false at padding, on the left of a row; positions count from the first real token.

    Returns:
        The positions, from 1, in float32, or float64 where `keys` is, and the sinks protected.
        `retain` with a budget $B$ keeps the first $a$ and the last $B - a$ tokens.

    Raises:
        TypeError: `keys` is not floating point, `sinks` not an integer, or `valid` not boolean.
        ValueError: `keys` has fewer than 3 axes, `sinks` is negative, `valid` has another shape
            than `keys` without heads and width, or a false after a true.

    Source:
        HubKV-StreamingLLM.

    Reading:
        E-U40: the system ranks nothing; any score that grows with the position keeps its set.
    """
    errors.floating("keys", keys, 3)
    errors.whole("sinks", sinks)
    rows = (*keys.shape[:-3], keys.shape[-2])
    valid = keys.new_ones(rows, dtype=torch.bool) if valid is None else valid
    refuse.padding(valid, rows)
    scores = widen(keys.new_zeros(keys.shape[:-1]))
    protected = torch.zeros_like(scores, dtype=torch.bool)
    position = valid.new_zeros(valid.shape[:-1], dtype=torch.int64)
    for t in range(keys.shape[-2]):
        position = position + valid[..., t]
        scores[..., t] = position[..., None]
        protected[..., t] = (valid[..., t] & (position <= sinks))[..., None]
    return Scored(scores, protected)
