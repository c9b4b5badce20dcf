"""Mutants of GEAR while decoding."""

import reference
from reference import GearBlock
from spec_tests.mutants.make import mutant

CACHE = "quantizers/test_gear_cache.py::test_"


@mutant(
    "gear_append",
    "decoded blocks are corrected at the prompt's rank",
    killer=CACHE + "the_prompt_is_one_span_and_each_decoded_block_another",
)
def rank_of_the_prompt(cache, keys, values):
    """Take the rank of the first block."""
    ranks = [block.left.shape[-1] for block in cache.key_blocks]
    changed = cache._replace(decoded_rank=ranks[0] if ranks else cache.decoded_rank)
    after = reference.gear_append(changed, keys, values)
    return after._replace(decoded_rank=cache.decoded_rank)


@mutant(
    "gear_append",
    "tokens left over when a block fills are lost",
    killer=CACHE + "decoding_in_any_chunks_gives_the_same_cache",
)
def gear_lost_tokens(cache, keys, values):
    """Empty the buffers whole."""
    after = reference.gear_append(cache, keys, values)
    if len(after.key_blocks) == len(cache.key_blocks):
        return after
    nothing = after.residual_keys[..., :0, :]
    return after._replace(residual_keys=nothing, residual_values=nothing)


@mutant(
    "gear_append",
    "the first block is compressed again",
    killer=CACHE + "append_never_changes_a_byte_of_earlier_blocks",
)
def gear_recompressed(cache, keys, values):
    """Compress what the first block of values restores."""
    after = reference.gear_append(cache, keys, values)
    if len(after.value_blocks) == len(cache.value_blocks) or not cache.value_blocks:
        return after
    first: GearBlock = cache.value_blocks[0]
    again = reference.gear_compress(
        reference.gear_reconstruct(first) + 1, "token", first.bits, cache.outliers, 0
    )
    return after._replace(value_blocks=(again, *after.value_blocks[1:]))


@mutant(
    "gear_read",
    "the buffer comes first",
    killer=CACHE + "what_is_read_is_every_block_in_order_and_the_buffer_as_it_is",
)
def buffer_first(cache, exact_outliers=False):
    """Put the newest tokens in front."""
    left = cache.residual_keys.shape[-2]
    return tuple(x.roll(left, -2) for x in reference.gear_read(cache, exact_outliers))


@mutant(
    "gear_read",
    "outliers of values are never left exact",
    killer=CACHE + "what_is_read_is_every_block_in_order_and_the_buffer_as_it_is",
)
def values_always_moved(cache, exact_outliers=False):
    """Ask for exact outliers among the keys alone."""
    keys, _ = reference.gear_read(cache, exact_outliers)
    _, values = reference.gear_read(cache)
    return keys, values


@mutant(
    "gear_append",
    "a decoded block starts from a seed of its own",
    killer=CACHE + "the_prompt_is_one_span_and_each_decoded_block_another",
)
def gear_seedless_blocks(cache, keys, values):
    """Forget the seed after the prompt."""
    after = reference.gear_append(cache._replace(seed=0), keys, values)
    return after._replace(seed=cache.seed)
