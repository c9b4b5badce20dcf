"""StreamingLLM: the first tokens and the last ones, whatever they say."""

from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import left_padded
from reference.contract.types import Whole
from reference.precision import widen
from reference.scorers._padding import valid_or_all
from reference.scorers.scored import Scored


@requires(left_padded)
def streaming_llm(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    sinks: Whole = 4,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by its position, and protect the attention sinks.

    $$s_t = t, \qquad P = \{t \le a\}, \qquad t = 1, \dots, N$$

    Args:
        keys: the cache; only its shape, dtype and device are read.
        sinks: number $a$ of first tokens that are protected.
        valid: false at padding, on the left of a row; positions count from the first real token.

    Returns:
        The positions, from 1, in float32, or float64 where `keys` is, and the sinks protected.
        `retain` with a budget $B$ keeps the first $a$ and the last $B - a$ tokens.

    Source:
        HubKV-StreamingLLM. From elsewhere: Xiao et al.; the paper names StreamingLLM and does not
        define it. The system has no scores: $s_t = t$ is ours (E-U40).

    Reading:
        E-U40: the system ranks nothing; any score that grows with the position keeps its set.
    """
    valid = valid_or_all(valid, keys)
    position = valid.cumsum(-1)[..., None, :].expand(keys.shape[:-1])
    protected = valid[..., None, :] & (position <= sinks)
    return Scored(position.to(widen(keys.new_empty(0)).dtype), protected)
