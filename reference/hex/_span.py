"""What the streaming cache does to one span: which mask, which heavy hitters, which window."""

from functools import lru_cache

import torch
from torch import Tensor

from reference.hex.compress import HexBlock, hex_compress
from reference.hex.expander import expander_mask
from reference.hex.heavy_hitters import h2o_mask
from reference.hex.presets import HexConfig


def carried(config: HexConfig) -> int:
    """Return how many tokens stay in the residual buffer when a block leaves it."""
    return config.recent if config.carry_recent else 0


def static_mask(config: HexConfig, tokens: int, channels: int) -> Tensor:
    """Return the expander mask of a span, or none, or all of it."""
    if config.density in (0, 1):
        return torch.full((tokens, channels), config.density == 1)
    shape = (tokens, channels, config.density, config.seed)
    try:
        return _recent_masks(*shape, False, config.tile, config.block)
    except ValueError:
        if not config.near:
            raise
        return _recent_masks(*shape, True, config.tile, config.block)


_recent_masks = lru_cache(maxsize=8)(expander_mask)


def compress_span(
    config: HexConfig, keys: Tensor, values: Tensor, mass: Tensor, seen: int, first: bool
) -> HexBlock:
    """Compress a span whose first token was seen by `seen` queries, each later one by one less."""
    kv_heads, tokens, width = keys.shape[-3:]
    if config.normalize:
        mass = mass / torch.arange(seen, seen - tokens, -1, dtype=mass.dtype, device=mass.device)
    windowed = not config.carry_recent and (first or config.recent_per_block)
    recent = config.recent if windowed else 0
    dynamic = h2o_mask(mass, config.heavy, recent, config.outside_recent)
    static = static_mask(config, tokens, kv_heads * width).to(keys.device)
    return hex_compress(
        keys, values, static, dynamic, config.bits, config.value_group, config.scales
    )
