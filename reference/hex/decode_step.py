"""A step of decoding with a HEX cache: what is read of it, token after token, while it goes on."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import dtype_of_cache, grouped, same_dtype
from reference.contract.types import Finite
from reference.hex.attention import hex_attention
from reference.hex.cache import HexCache, add_tokens, buffer_space, hex_append


class HexDecoded(NamedTuple):
    """What the queries of new tokens read, and the cache that holds these tokens too.

    Source:
        HEX-5a.
    """

    output: Float[Tensor, "*batch query_heads tokens width"]
    cache: HexCache


@requires(grouped, dtype_of_cache, same_dtype)
def hex_decode(
    cache: HexCache,
    queries: Finite[Tensor, "*batch query_heads tokens width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
) -> HexDecoded:
    r"""Add decoded tokens to a HEX cache, and answer their queries.

    $$o_t = \operatorname{Attn}\bigl(q_t,\; \widehat K_{1:t_0} \,\Vert\, K_{t_0+1:t},\;
      \widehat V_{1:t_0} \,\Vert\, V_{t_0+1:t}\bigr)$$

    Args:
        cache: the cache so far.
        queries: queries of the new tokens, of all query heads.
        keys: keys of the new tokens.
        values: values of the new tokens.

    Returns:
        The output for each new token, and the cache that `hex_append` returns. A token sees
        the blocks that were compressed before it came, and exactly what came since.

    Raises:
        ValueError: a logit, step or minimum overflows.

    Source:
        HEX-3.1a, HEX-4.1a, HEX-5a. In words (§4.1): "Tokens inside the residual buffer are
        maintained in full precision (fp16) until the block fills, at which point they are
        compressed." $\operatorname{Attn}$ is that of §3.1.

    Reading:
        E-H9, E-H73: the weights that make the output are those that heavy hitters are chosen by;
        both are over the same unrounded keys, as `hex_attention` reads them.
    """
    output, start, length = torch.empty_like(queries), 0, keys.shape[-2]
    while start < length:
        stop = min(length, start + buffer_space(cache))
        part = [x[..., start:stop, :] for x in (queries, keys, values)]
        extended = add_tokens(cache, *part[1:])
        output[..., start:stop, :] = hex_attention(part[0], extended).output
        cache, start = hex_append(cache, *part), stop
    return HexDecoded(output, cache)
