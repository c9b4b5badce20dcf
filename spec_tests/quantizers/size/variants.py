"""The sizes of caches of zeros."""

import torch

import reference
from reference import KiviCache, QuantizerBytes
from spec_tests.variants.registry import register_variant


@register_variant("quantizer_bytes")
def by_elements(cache):
    """Count elements, and multiply by the bytes of one."""

    def weight(*tensors):
        return sum(x.numel() * x.element_size() for x in tensors)

    residual = weight(cache.residual_keys, cache.residual_values)
    if isinstance(cache, KiviCache):
        scales = cache.key_steps, cache.key_minima, cache.value_steps, cache.value_minima
        return QuantizerBytes(
            weight(cache.key_words, cache.value_words), weight(*scales), 0, 0, residual
        )
    blocks = [*cache.key_blocks, *cache.value_blocks]
    return QuantizerBytes(
        weight(*(b.words for b in blocks)),
        weight(*(x for b in blocks for x in (b.steps, b.minima))),
        weight(*(x for b in blocks for x in (b.outliers, b.places))),
        weight(*(x for b in blocks for x in (b.left, b.right))),
        residual,
    )


@register_variant("kivi_size")
def of_an_empty_prompt(
    tokens, bits=2, group=32, residual=32, kv_heads=8, width=128, dtype=torch.float16
):
    """Build the cache of zeros and count its bytes."""
    zeros = torch.zeros(kv_heads, tokens, width, dtype=dtype)
    return by_elements(reference.kivi_prefill(zeros, zeros, bits, group, residual))


@register_variant("gear_size")
def of_an_empty_span(
    tokens, bits=4, outliers=0.02, rank=4, kv_heads=8, width=128, dtype=torch.float16
):
    """Build the cache of zeros and count its bytes."""
    zeros = torch.zeros(kv_heads, tokens, width, dtype=dtype)
    return by_elements(reference.gear_prefill(zeros, zeros, bits, outliers, rank))
