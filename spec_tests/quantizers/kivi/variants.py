"""KIVI, one token at a time."""

# pyright: reportCallIssue=false

import math

import torch

import reference
from reference import KiviCache
from spec_tests.variants.registry import register_variant


def coded(rows, bits, group, scales):
    """Return the words, steps and minima of rows, one group at a time."""
    parts = [reference.quantise(part, bits, scales=scales) for part in rows.split(group, -1)]
    words = reference.pack_bits(torch.cat([part.codes for part in parts], -1), bits)
    return (
        words,
        torch.stack([p.steps for p in parts], -1),
        torch.stack([p.minima for p in parts], -1),
    )


@register_variant("kivi_append")
def token_by_token(cache, keys, values):
    """Buffer each token; quantise keys when the buffer is full, and values one by one."""
    key_parts = cache.key_words, cache.key_steps, cache.key_minima
    value_parts = cache.value_words, cache.value_steps, cache.value_minima
    held_keys, held_values = cache.residual_keys.clone(), cache.residual_values.clone()
    layout = cache.bits, cache.group, cache.scales
    for t in range(keys.shape[-2]):
        held_keys = torch.cat([held_keys, keys[..., t : t + 1, :]], -2)
        held_values = torch.cat([held_values, values[..., t : t + 1, :]], -2)
        if held_keys.shape[-2] == cache.residual:
            new = coded(held_keys.mT, *layout)
            key_parts = [
                torch.cat([old, part[..., None, :, :]], -3)
                for old, part in zip(key_parts, new, strict=True)
            ]
            held_keys = held_keys[..., :0, :].clone()
        if held_values.shape[-2] > cache.residual:
            new = coded(held_values[..., :1, :], *layout)
            value_parts = [torch.cat(pair, -2) for pair in zip(value_parts, new, strict=True)]
            held_values = held_values[..., 1:, :].clone()
    return KiviCache(
        cache.bits, cache.group, cache.residual, cache.scales,
        *key_parts, *value_parts, held_keys, held_values,
    )  # fmt: skip


@register_variant("kivi_prefill")
def from_nothing(keys, values, bits=2, group=32, residual=32, scales=None):
    """Append the prompt to an empty cache."""
    *before, _, width = keys.shape
    stored = scales or (keys.dtype if keys.dtype in (torch.half, torch.double) else torch.float32)

    def words(*shape):
        return torch.zeros(*before, *shape, dtype=torch.int32)

    def numbers(*shape):
        return torch.zeros(*before, *shape, dtype=stored)

    empty = KiviCache(
        bits, group, residual, scales,
        words(0, width, math.ceil(residual * bits / 32)),
        numbers(0, width, residual // group), numbers(0, width, residual // group),
        words(0, math.ceil(width * bits / 32)),
        numbers(0, width // group), numbers(0, width // group),
        keys[..., :0, :].clone(), values[..., :0, :].clone(),
    )  # fmt: skip
    return token_by_token(empty, keys, values)


@register_variant("kivi_read")
def with_repeated_scales(cache):
    """Repeat steps and minima for each member of the group."""

    def restored(words, steps, minima, length):
        codes = reference.unpack_bits(words, cache.bits, length)
        each = (x.repeat_interleave(cache.group, -1) for x in (steps, minima))
        step, low = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in each)
        return (codes * step + low).to(cache.residual_keys.dtype)

    keys = restored(cache.key_words, cache.key_steps, cache.key_minima, cache.residual)
    width = cache.residual_values.shape[-1]
    values = restored(cache.value_words, cache.value_steps, cache.value_minima, width)
    keys = keys.mT.flatten(-3, -2)
    return (
        torch.cat([keys, cache.residual_keys], -2),
        torch.cat([values, cache.residual_values], -2),
    )
