"""A prompt stored in HEX around tokens that somebody else marked."""

import torch
from torch import Tensor

from reference.hex._span import static_mask
from reference.hex.cache import HexCache
from reference.hex.compress import hex_compress, hex_mask
from reference.hex.presets import HexConfig
from reference.precision import widen


def hex_store(
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    marked: Tensor,
    valid: Tensor | None,
    config: HexConfig,
) -> HexCache:
    """Keep the marked tokens of the span exactly, quantise its rest, hold the others back."""
    span, (heads, length, width) = marked.shape[-1], keys.shape[-3:]
    if valid is None:
        valid = marked.new_ones(length)
    real = valid[..., None, :].expand(*keys.shape[:-2], length)
    keys, values = (x.masked_fill(~real[..., None], 0) for x in (keys, values))
    mass = widen(scores).masked_fill(~real, 0).sum(-2)
    blocks = ()
    if span:
        static = static_mask(config, span, heads * width).to(keys.device)
        coded = real[..., :span, None] & ~hex_mask(static, marked, heads)
        settings = config.bits, config.value_group, config.scales
        blank = harmless(keys[..., :span, :], coded, real[..., :span, None])
        blocks = (hex_compress(blank, values[..., :span, :], static, marked, *settings),)
    remembered = 0 if config.mode == "append" else span
    originals = span if config.mode == "oracle" else 0
    return HexCache(
        config,
        blocks,
        keys[..., span:, :].clone(),
        values[..., span:, :].clone(),
        mass[..., span:].clone(),
        mass[..., :remembered].clone(),
        keys[..., :originals, :].clone(),
        values[..., :originals, :].clone(),
    )


def harmless(keys: Tensor, coded: Tensor, real: Tensor) -> Tensor:
    """Put into the padding of each channel a number that leaves its range as it is."""
    lowest = keys.masked_fill(~coded, torch.inf).amin(-2, keepdim=True)
    return torch.where(real, keys, torch.where(coded.any(-2, keepdim=True), lowest, 0))
