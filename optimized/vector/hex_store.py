"""A prompt stored in HEX around tokens that somebody else marked."""

import torch
from torch import Tensor

from optimized.vector.hex_block import hex_compress, hex_mask
from optimized.vector.hex_cache import static_mask
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.precision import widen


def span_of(config: HexConfig, length: int) -> int:
    """Return how many tokens of a prompt are compressed at once."""
    held = config.recent if config.carry_recent else 0
    return max(0, length - held) // config.block * config.block


def hex_store(
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    marked: Tensor,
    valid: Tensor | None,
    config: HexConfig,
) -> HexCache:
    """Keep the marked tokens of the span exactly, quantise its rest, hold the others back."""
    span, scores = marked.shape[-1], widen(scores)
    real = None
    if valid is not None:
        real = valid[..., None, :].expand(scores.shape)
        scores = scores.masked_fill(~real, 0)
        keys, values = (x.masked_fill(~real[..., None], 0) for x in (keys, values))
    mass, blocks = scores.sum(-2), ()
    if span:
        static = static_mask(config, span, keys.shape[-3] * keys.shape[-1]).to(keys.device)
        inner = keys[..., :span, :]
        if real is not None:
            inner = _harmless(inner, hex_mask(static, marked, keys.shape[-3]), real[..., :span])
        settings = config.bits, config.value_group, config.scales
        blocks = (hex_compress(inner, values[..., :span, :], static, marked, *settings),)
    remembered = 0 if config.mode == "append" else span
    originals = span if config.mode == "oracle" else 0
    return HexCache(
        config=config,
        blocks=blocks,
        residual_keys=keys[..., span:, :].clone(),
        residual_values=values[..., span:, :].clone(),
        residual_mass=mass[..., span:].clone(),
        mass=mass[..., :remembered].clone(),
        original_keys=keys[..., :originals, :].clone(),
        original_values=values[..., :originals, :].clone(),
    )


def _harmless(keys: Tensor, kept: Tensor, real: Tensor) -> Tensor:
    """Put into the padding of each channel a number that leaves its range as it is."""
    coded = real[..., None] & ~kept
    lowest = keys.masked_fill(~coded, torch.inf).amin(-2, keepdim=True)
    return keys.where(real[..., None], lowest.masked_fill(~coded.any(-2, keepdim=True), 0))
