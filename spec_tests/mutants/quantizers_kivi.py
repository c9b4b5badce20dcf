"""Mutants of KIVI."""

import torch

import reference
from spec_tests.mutants.make import mutant

KIVI = "quantizers/test_kivi.py::test_"


@mutant(
    "kivi_prefill",
    "keys go by token and values by channel",
    killer=KIVI + "one_group_of_all_tokens_without_a_residual_is_kcvt",
)
def kivi_exchanged_axes(keys, values, bits=2, group=32, residual=32, scales=None):
    """Store keys whose tokens are the groups of a square block."""
    tokens = keys.shape[-2] // residual * residual
    blocks = keys[..., :tokens, :].unflatten(-2, (-1, residual))
    if blocks.shape[-1] % residual or not tokens:
        return reference.kivi_prefill(keys, values, bits, group, residual, scales)
    squares = blocks.unflatten(-1, (-1, residual)).transpose(-1, -3).flatten(-2)
    turned = torch.cat([squares.flatten(-3, -2), keys[..., tokens:, :]], -2)
    return reference.kivi_prefill(turned, values, bits, group, residual, scales)


@mutant(
    "kivi_prefill",
    "a whole block is one group",
    killer="test_vectors.py::test_vector[quantizers-kivi-keys-by-channel-values-by-token]",
)
def kivi_without_groups(keys, values, bits=2, group=32, residual=32, scales=None):
    """Take the statistics of a channel over the whole buffer."""
    cache = reference.kivi_prefill(keys, values, bits, group, residual, scales)
    whole = reference.kivi_prefill(keys, keys.new_zeros(keys.shape), bits, 1, residual, scales)
    high, low = whole.key_minima.amax(-1, keepdim=True), whole.key_minima.amin(-1, keepdim=True)
    steps = ((high - low) / (2**bits - 1)).expand_as(cache.key_steps)
    return cache._replace(key_steps=steps, key_minima=low.expand_as(cache.key_minima))


@mutant(
    "kivi_prefill",
    "the values of a full buffer are quantised with its keys",
    killer=KIVI + "the_last_tokens_are_exact",
)
def values_by_the_block(keys, values, bits=2, group=32, residual=32, scales=None):
    """Let values leave as keys do."""
    cache = reference.kivi_prefill(keys, values, bits, group, residual, scales)
    left = values.shape[-2] % residual
    if left == values.shape[-2]:
        return cache
    padding = values.new_zeros(*values.shape[:-2], residual - left, values.shape[-1])
    padded = torch.cat([values, padding], -2)
    longer = reference.kivi_prefill(padded, padded, bits, group, residual, scales)
    buffer = longer.residual_values[..., :left, :]
    return longer._replace(
        key_words=cache.key_words,
        key_steps=cache.key_steps,
        key_minima=cache.key_minima,
        residual_keys=cache.residual_keys,
        residual_values=buffer,
    )


@mutant(
    "kivi_prefill",
    "the step is the range over 2^b",
    killer=KIVI + "every_head_is_what_the_definition_gives_one_number_at_a_time",
)
def kivi_one_level_too_many(keys, values, bits=2, group=32, residual=32, scales=None):
    """Count levels where intervals count."""
    cache = reference.kivi_prefill(keys, values, bits, group, residual, scales)
    shrink = (2**bits - 1) / 2**bits
    return cache._replace(
        key_steps=cache.key_steps * shrink, value_steps=cache.value_steps * shrink
    )


@mutant(
    "kivi_prefill",
    "nothing is quantised",
    killer=KIVI + "codes_are_used_where_they_are_supposed_to_be",
)
def kivi_untouched(keys, values, bits=2, group=32, residual=32, scales=None):
    """Give every key a group of its own, and every value a place in the buffer."""
    cache = reference.kivi_prefill(keys, values, bits, group, residual, scales)
    alone = reference.kivi_prefill(keys, values, 1, 1, keys.shape[-2], scales)
    return alone if cache.key_words.numel() else cache


@mutant(
    "kivi_append",
    "tokens left over when a buffer fills are lost",
    killer=KIVI + "any_chunks_of_tokens_give_the_same_cache",
)
def kivi_lost_tokens(cache, keys, values):
    """Empty the buffer of keys whole."""
    after = reference.kivi_append(cache, keys, values)
    if after.key_words.shape[-3] == cache.key_words.shape[-3]:
        return after
    return after._replace(residual_keys=after.residual_keys[..., :0, :])


@mutant(
    "kivi_append",
    "what is stored is quantised again with what is new",
    killer=KIVI + "append_never_changes_a_byte_of_earlier_groups",
)
def kivi_requantised(cache, keys, values):
    """Start over from what the cache restores, at half the values' scale and back."""
    after = reference.kivi_append(cache, keys, values)
    if after.value_words.shape[-2] == cache.value_words.shape[-2]:
        return after
    return after._replace(value_steps=after.value_steps[..., :1, :].expand_as(after.value_steps))


@mutant(
    "kivi_read",
    "codes of a group are restored with the next group's scales",
    killer=KIVI + "the_error_is_at_most_half_a_step_of_the_members_own_group",
)
def kivi_rolled_scales(cache):
    """Shift the steps of keys by a group."""
    return reference.kivi_read(
        cache._replace(
            key_steps=cache.key_steps.roll(1, -1), key_minima=cache.key_minima.roll(1, -1)
        )
    )


@mutant(
    "kivi_prefill",
    "scales are stored as the cache's type asks, whatever was asked for",
    killer=KIVI + "scales_are_stored_in_the_type_asked_for",
)
def kivi_own_scales(keys, values, bits=2, group=32, residual=32, scales=None):
    """Forget what was asked for once the cache is started."""
    cache = reference.kivi_prefill(keys, values, bits, group, residual)
    return cache._replace(scales=scales)


@mutant(
    "kivi_read",
    "what rounds past the largest finite number is infinite",
    killer=KIVI + "the_largest_numbers_stay_finite",
)
def kivi_infinite(cache):
    """Restore in float32 and convert."""
    dtype = cache.residual_keys.dtype
    wide = cache._replace(
        residual_keys=cache.residual_keys.float(), residual_values=cache.residual_values.float()
    )
    keys, values = reference.kivi_read(wide)
    return keys.to(dtype), values.to(dtype)
