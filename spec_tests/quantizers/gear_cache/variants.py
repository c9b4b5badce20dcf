"""GEAR's cache, one token at a time."""

import torch

from reference import GearCache
from spec_tests.quantizers.gear.variants import (
    scatter_outliers_and_add_correction,
    subtract_part_by_part,
)
from spec_tests.variants.registry import register_variant


def with_block(cache, keys, values, rank):
    """Return the cache with a span as another block."""
    rest = cache.bits, cache.outliers, rank, cache.fill, cache.seed, cache.scales
    return cache._replace(
        key_blocks=(*cache.key_blocks, subtract_part_by_part(keys, "channel", *rest)),
        value_blocks=(*cache.value_blocks, subtract_part_by_part(values, "token", *rest)),
    )


@register_variant("gear_prefill")
def at_once(
    keys, values, bits=4, outliers=0.02, rank=4, decoded_rank=2, block=20, fill=True, seed=0,
    scales=None,
):  # fmt: skip
    """Compress the prompt as one span."""
    buffers = torch.empty_like(keys[..., :0, :]), torch.empty_like(values[..., :0, :])
    settings = bits, outliers, decoded_rank, block, fill, seed, scales
    cache = GearCache(*settings, (), (), *buffers)
    return with_block(cache, keys, values, rank) if keys.shape[-2] else cache


@register_variant("gear_append")
def token_by_token(cache, keys, values):
    """Buffer each token, and compress a full buffer."""
    for t in range(keys.shape[-2]):
        held = torch.cat([cache.residual_keys, keys[..., t : t + 1, :]], -2)
        others = torch.cat([cache.residual_values, values[..., t : t + 1, :]], -2)
        if held.shape[-2] == cache.block:
            cache = with_block(cache, held, others, cache.decoded_rank)
            held, others = held[..., :0, :].clone(), others[..., :0, :].clone()
        cache = cache._replace(residual_keys=held, residual_values=others)
    return cache


@register_variant("gear_read")
def block_after_block(cache, exact_outliers=False):
    """Restore each block, and append the buffer."""

    def whole(blocks, buffer):
        return torch.cat(
            [*(scatter_outliers_and_add_correction(b, exact_outliers) for b in blocks), buffer], -2
        )

    return (
        whole(cache.key_blocks, cache.residual_keys),
        whole(cache.value_blocks, cache.residual_values),
    )
