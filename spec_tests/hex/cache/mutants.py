"""Mutants of the streaming cache."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/cache")
mutant("""
test_keys_have_the_codes_of_their_bits_and_values_those_of_theirs
  hex_values_in_the_bits_of_keys: values have codes of as many bits as keys
  - other = compress(*span, both[1], *settings)
  + other = compress(*span, both[0], *settings)
test_a_prompt_leaves_less_than_a_block_and_the_tokens_carried
  nothing_held_back: an unfinished block is compressed too
  - tokens = compressible_length(config, keys.shape[-2])
  + tokens = keys.shape[-2]
test_heavy_hitters_of_a_span_are_by_the_queries_since_it_arrived
  never_normalized_prompt: mass of a prompt's span is not divided by the number of queries
  - compress_span(config, *span, mass, tokens, True)
  + compress_span(config._replace(normalize=False), *span, mass, tokens, True)
test_heavy_hitters_of_the_whole_are_by_all_queries
  never_normalized_again: mass of a later span is not divided by the number of queries
  - compress_span(cache.config, keys, values, mass[..., :tokens]
  + compress_span(cache.config._replace(normalize=False), keys, values, mass[..., :tokens]
test_full_quantises_the_block_that_fills_once
  quantised_twice: full mode quantises a block when it is full, and again with the whole cache
  - return recompress_as_one_span(cache, cache.config.block)
  + return recompress_as_one_span(compress_oldest_block(cache), 0)
test_no_more_blocks_stand_side_by_side_than_the_period
  always_append: full mode puts a block beside the others, as append mode does
  - return recompress_as_one_span(cache, cache.config.block)
  + return compress_oldest_block(cache)
test_full_changes_no_code_where_mask_and_groups_stay
  mass_used_up: the first recompression sets the mass to 0
  -     return recompress_as_one_span(cache, 0) if cache.blocks else cache
  +     after = recompress_as_one_span(cache, 0) if cache.blocks else cache
  +     return after._replace(mass=torch.zeros_like(after.mass))
test_any_sequence_of_steps_keeps_order_count_residual_and_bytes
  wrong_end: tokens are put in front of the buffer
  - torch.cat([cache.residual_keys, keys], -2)
  + torch.cat([keys, cache.residual_keys], -2)
  residual_first: the residual buffer comes first
  - [*keys, cache.residual_keys]
  + [cache.residual_keys, *keys]
  rounded_residual: the residual buffer is rounded to half precision
  - keys[..., size:, :].clone()
  + keys[..., size:, :].half().to(keys.dtype)
test_full_from_originals_is_compressing_once
  oracle_is_blind: oracle mode compresses restored entries instead of the originals
  - if cache.config.mode == "oracle":
  + if cache.config.mode == "no oracle":
hex/decode_step/test_laws.py::test_mass_and_output_over_a_cache_in_half_precision_are_of_unrounded_entries
  mass_of_what_is_rounded: mass is computed with entries rounded to the dtype of the cache
  - attention_mass(queries, read_unrounded(cache)[0])
  + attention_mass(queries, hex_read(cache)[0])
test_append_never_changes_a_byte_of_earlier_blocks
  always_full: append mode compresses earlier blocks again
  -     return move_to_blocks(cache, (*cache.blocks, block), size)
  +     again = [old._replace(key_minima=old.key_minima + 1) for old in cache.blocks]
  +     return move_to_blocks(cache, (*again, block), size)
test_decoding_in_any_chunks_gives_the_same_cache
  chunk_by_chunk: a whole chunk is compressed at once, whatever its size
  +     config, left = cache.config, cache.residual_keys.shape[-2] + keys.shape[-2]
  +     # spans of any other length have no expander of half the entries
  +     if left > config.block and not config.carry_recent and config.density in (0, 1):
  +         whole = cache._replace(config=config._replace(block=left))
  +         return hex_append(whole, queries, keys, values)._replace(config=config)
        while keys.shape[-2]:
""")
