"""Mutants of GEAR while decoding."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/gear_cache")
mutant("""
test_the_prompt_is_one_span_and_each_decoded_block_another
  rank_of_the_prompt: decoded blocks are corrected at the rank of the prompt
  - *new, cache.decoded_rank
  + *new, next((b.left.shape[-1] for b in cache.key_blocks), cache.decoded_rank)
  gear_seedless_blocks: decoded blocks start from seed 0
  - with_block(cache, *new, cache.decoded_rank, compress)
  + with_block(cache._replace(seed=0), *new, cache.decoded_rank, compress)._replace(seed=cache.seed)
  gear_recompressed: the first block is compressed again
  - (*cache.value_blocks, by_token)
  + (*(compress_side('', gear_reconstruct(b), 'token', value_bits, *settings)
  +    for b in cache.value_blocks), by_token)
  gear_values_in_the_bits_of_keys: values have codes of as many bits as keys
  - "token", value_bits, *settings
  + "token", key_bits, *settings
test_decoding_in_any_chunks_gives_the_same_cache
  gear_lost_tokens: tokens left over after a full block are lost
            cache = with_block(cache, *new, cache.decoded_rank, compress)
  +         full = held_keys.shape[-2]
test_what_is_read_is_every_block_in_order_and_the_buffer_as_it_is
  buffer_first: the buffer comes first
  - [*keys, cache.residual_keys]
  + [cache.residual_keys, *keys]
  values_always_moved: outliers of values are never restored exactly
  - [gear_reconstruct(block, exact_outliers) for block in cache.value_blocks]
  + [gear_reconstruct(block) for block in cache.value_blocks]
""")
