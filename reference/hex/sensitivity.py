"""What each setting costs in attention error, and what it saves in bytes."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from reference.attention import attention_error
from reference.contract.enforce import requires
from reference.contract.preconditions import (
    grouped,
    keys_have_heads_and_channels,
    nonnegative_at_most,
    same_dtype,
)
from reference.contract.types import Finite, Whole
from reference.hex.cache import hex_append, hex_prefill, hex_read
from reference.hex.presets import HexConfig
from reference.hex.size import hex_bytes


class Sensitivity(NamedTuple):
    """How sensitive attention is to one choice of settings, and what it saves: a point of Fig. 3.

    Source:
        HEX-A.5, HEX-Tab4.
    """

    config: HexConfig
    error: Float[Tensor, ""]
    """Mean attention deviation of the decoded queries."""
    bytes: int
    """Bytes of the cache at the end."""
    percent: float
    """The same in percent of the uncompressed cache."""


def leaving_some(prompt: int, tokens: int) -> None:
    """Refuse a prompt that leaves nothing to decode."""
    nonnegative_at_most("prompt", prompt, tokens - 1)


@requires(keys_have_heads_and_channels, grouped, same_dtype, leaving_some)
def sensitivity(
    queries: Finite[Tensor, "*batch query_heads tokens width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    prompt: Whole,
    configs: Sequence[HexConfig],
) -> tuple[Sensitivity, ...]:
    r"""Stream one sequence through several settings and measure each.

    $$\bar\epsilon = \operatorname{mean}_t
      \|\mathrm{Attn}(q_t, K, V) - \mathrm{Attn}(q_t, \widehat K, \widehat V)\|_2$$

    Args:
        queries: queries of all tokens, of all query heads.
        keys: keys of all tokens.
        values: values of all tokens.
        prompt: how many of the tokens are the prompt, less than all; the rest is decoded.
        configs: settings, one a row. A sweep over one of them is
            `[config._replace(bits=b) for b in (2, 3, 4)]`.

    Returns:
        A row for each setting, in order. Each decoded query attends to what `hex_read` returns
        of the cache as it stands when the token arrives; the mean is over queries, heads and batch.

    Raises:
        ValueError: no mask has the density asked for, or a step or minimum overflows.

    Source:
        HEX-A.5, HEX-Tab4. Ours: the mean of the $\epsilon_t$ of §3.1 over a stream; A.5 and
        Table 4 measure accuracy.
    """
    tokens, rows = keys.shape[-2], []
    for config in configs:
        first = (x[..., :prompt, :] for x in (queries, keys, values))
        cache, deviations = hex_prefill(*first, config=config), []
        for t in range(prompt, tokens):
            query, key, value = (x[..., t : t + 1, :] for x in (queries, keys, values))
            past_keys, past_values = hex_read(cache)
            deviations.append(
                attention_error(
                    query,
                    keys[..., : t + 1, :],
                    values[..., : t + 1, :],
                    torch.cat([past_keys, key], -2),
                    torch.cat([past_values, value], -2),
                )
            )
            cache = hex_append(cache, query, key, value)
        size = hex_bytes(cache).total
        dense = 2 * keys.nbytes
        error = torch.cat(deviations, -1).mean()
        rows.append(Sensitivity(config, error, size, 100 * size / dense))
    return tuple(rows)
