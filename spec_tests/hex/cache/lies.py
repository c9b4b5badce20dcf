"""Lies about the streaming cache."""

import reference
from reference.hex.cache import static_mask
from spec_tests.mutants.make import lies, mutant

lie = lies("hex/cache")

lie(
    "nothing_held_back",
    "an unfinished block is compressed too",
    "tokens = span_length(config, keys.shape[-2])",
    "tokens = keys.shape[-2]",
    "test_a_prompt_leaves_less_than_a_block_and_the_tokens_carried",
)
lie(
    "rounded_residual",
    "the residual buffer is rounded to half precision",
    "keys[..., tokens:, :].clone()",
    "keys[..., tokens:, :].half().to(keys.dtype)",
    "test_a_prompt_is_its_blocks_and_the_rest_in_the_buffer",
)
lie(
    "never_normalized_prompt",
    "mass is not divided by the queries that saw a token, though asked for",
    "compress_span(config, *span, mass, tokens, True)",
    "compress_span(config._replace(normalize=False), *span, mass, tokens, True)",
    "test_heavy_hitters_of_a_span_are_by_the_queries_since_it_arrived",
)
lie(
    "seedless_prompt",
    "one mask for every seed",
    "config.density, config.seed)",
    "config.density, 0)",
    "test_each_span_has_the_mask_of_its_length_and_of_the_seed",
)
lie(
    "never_normalized_again",
    "the mass since arrival is taken for the mass of one query",
    "compress_span(cache.config, *span",
    "compress_span(cache.config._replace(normalize=False), *span",
    "test_heavy_hitters_of_the_whole_are_by_all_queries",
)
lie(
    "quantised_twice",
    "full mode quantises the block that fills, and then again with the whole",
    "compress_residual(cache) if append else recompress(cache, cache.config.block)",
    "compress_residual(cache) if append else recompress(compress_residual(cache), 0)",
    "test_full_quantises_the_block_that_fills_once",
)
lie(
    "mass_used_up",
    "mass is spent by the first recompression",
    "return recompress(cache, 0) if cache.blocks else cache",
    "after = recompress(cache, 0) if cache.blocks else cache\n"
    "    return after._replace(mass=torch.zeros_like(after.mass))",
    "test_full_changes_no_code_where_mask_and_groups_stay",
)
lie(
    "wrong_end",
    "tokens are put in front of the buffer",
    "torch.cat([cache.residual_keys, keys], -2)",
    "torch.cat([keys, cache.residual_keys], -2)",
    "test_any_sequence_of_steps_keeps_order_count_residual_and_bytes",
)
lie(
    "oracle_is_blind",
    "the oracle compresses what the cache holds",
    'if cache.config.mode == "oracle":',
    'if cache.config.mode == "no oracle":',
    "test_full_from_originals_is_compressing_once",
)
lie(
    "residual_first",
    "the residual buffer comes first",
    "[*keys, cache.residual_keys]",
    "[cache.residual_keys, *keys]",
    "test_the_residual_buffer_is_exact_and_last",
)


@mutant(
    "hex_append",
    "append mode compresses earlier blocks again",
    killer="hex/cache/test_laws.py::test_append_never_changes_a_byte_of_earlier_blocks",
)
def always_full(cache, queries, keys, values):
    """Recompress whatever the mode."""
    after = reference.hex_append(cache, queries, keys, values)
    if len(after.blocks) < 2:
        return after
    lossy, tokens = reference.hex_read(after), after.blocks[0].dynamic.shape[-1]
    first = [x[..., :tokens, :] + 1 for x in lossy]
    static = static_mask(cache.config, tokens, keys.shape[-3] * keys.shape[-1])
    again = reference.hex_compress(
        first[0], first[1], static, after.blocks[0].dynamic, cache.config.bits
    )
    return after._replace(blocks=(again, *after.blocks[1:]))


@mutant(
    "hex_append",
    "a chunk is compressed as it came, whatever its size",
    killer="hex/cache/test_laws.py::test_decoding_in_any_chunks_gives_the_same_cache",
)
def chunk_by_chunk(cache, queries, keys, values):
    """Make a block of all the chunks that fill a buffer."""
    left = cache.residual_keys.shape[-2] + keys.shape[-2]
    config = cache.config
    # spans of any other length have no expander of half the entries
    if left <= config.block or config.carry_recent or config.density not in (0, 1):
        return reference.hex_append(cache, queries, keys, values)
    whole = cache._replace(config=config._replace(block=left))
    return reference.hex_append(whole, queries, keys, values)._replace(config=config)
