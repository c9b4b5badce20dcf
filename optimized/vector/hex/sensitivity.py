"""The sensitivity study, with tokens appended in chunks that fill the residual buffer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from optimized.vector.attention import attention_error
from optimized.vector.hex.cache import hex_append, hex_prefill, hex_read
from reference.hex.cache import carried_tokens
from reference.hex.presets import HexConfig
from reference.hex.sensitivity import Sensitivity
from reference.hex.size import hex_bytes


def sensitivity(
    queries: Tensor, keys: Tensor, values: Tensor, prompt: int, configs: Sequence[HexConfig]
) -> tuple[Sensitivity, ...]:
    return tuple(measure_sensitivity(queries, keys, values, prompt, config) for config in configs)


def measure_sensitivity(
    queries: Tensor, keys: Tensor, values: Tensor, prompt: int, config: HexConfig
) -> Sensitivity:
    cache = hex_prefill(*(x[..., :prompt, :] for x in (queries, keys, values)), config=config)
    limit = config.block + carried_tokens(config)
    deviations, start, tokens = [], prompt, keys.shape[-2]
    while start < tokens:
        # compression happens only when the residual buffer is full
        stop = min(tokens, start + limit - cache.residual_keys.shape[-2])
        new = tuple(x[..., start:stop, :] for x in (queries, keys, values))
        past = hex_read(cache)
        compressed = torch.cat([past[0], new[1]], -2), torch.cat([past[1], new[2]], -2)
        exact = keys[..., :stop, :], values[..., :stop, :]
        deviations.append(attention_error(new[0], *exact, *compressed, True, None))
        cache, start = hex_append(cache, *new), stop
    size = hex_bytes(cache).total
    error = torch.cat(deviations, -1).mean()
    return Sensitivity(config, error, size, 100 * size / (2 * keys.nbytes))
