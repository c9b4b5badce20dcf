"""Mutants of the HEX cache."""

import sys

import torch

import reference
from reference import HexBytes
from reference.hex._span import static_mask
from spec_tests.mutants.make import mutant


@mutant(
    "hex_prefill",
    "an unfinished block is compressed too",
    killer="hex/test_cache.py::test_a_prompt_leaves_less_than_a_block_and_the_tokens_carried",
)
def nothing_held_back(queries, keys, values, config):
    """Make one block of the whole prompt."""
    length = keys.shape[-2]
    whole = config._replace(block=max(1, length), carry_recent=False)
    return reference.hex_prefill(queries, keys, values, whole)._replace(config=config)


@mutant(
    "hex_prefill",
    "the residual buffer is rounded to half precision",
    killer="hex/test_cache.py::test_a_prompt_is_its_blocks_and_the_rest_in_the_buffer",
)
def rounded_residual(queries, keys, values, config):
    """Store the buffer in float16."""
    cache = reference.hex_prefill(queries, keys, values, config)
    return cache._replace(residual_keys=cache.residual_keys.half().to(keys.dtype))


@mutant(
    "hex_prefill",
    "mass is not divided by the queries that saw a token, though asked for",
    killer="hex/test_cache.py::test_heavy_hitters_of_a_span_are_by_the_queries_since_it_arrived",
)
def never_normalized_prompt(queries, keys, values, config):
    """Forget to normalise."""
    plain = config._replace(normalize=False)
    return reference.hex_prefill(queries, keys, values, plain)._replace(config=config)


@mutant(
    "hex_prefill",
    "one mask for every seed",
    killer="hex/test_cache.py::test_each_span_has_the_mask_of_its_length_and_of_the_seed",
)
def seedless_prompt(queries, keys, values, config):
    """Forget the seed."""
    other = config._replace(seed=config.seed + 1)
    return reference.hex_prefill(queries, keys, values, other)._replace(config=config)


@mutant(
    "hex_recompress",
    "the mass since arrival is taken for the mass of one query",
    killer="hex/test_cache.py::test_heavy_hitters_of_the_whole_are_by_all_queries",
)
def never_normalized_again(cache):
    """Forget to normalise."""
    plain = cache._replace(config=cache.config._replace(normalize=False))
    return reference.hex_recompress(plain)._replace(config=cache.config)


@mutant(
    "hex_append",
    "append mode compresses earlier blocks again",
    killer="hex/test_cache.py::test_append_never_changes_a_byte_of_earlier_blocks",
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
    killer="hex/test_cache.py::test_decoding_in_any_chunks_gives_the_same_cache",
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


@mutant(
    "hex_append",
    "full mode quantises the block that fills, and then again with the whole",
    killer="hex/test_cache.py::test_full_quantises_the_block_that_fills_once",
)
def quantised_twice(cache, queries, keys, values):
    """Let the new block stand beside the others first."""
    config = cache.config
    patient = config._replace(period=sys.maxsize)
    for t in range(keys.shape[-2]):
        new = (x[..., t : t + 1, :] for x in (queries, keys, values))
        cache = reference.hex_append(cache._replace(config=patient), *new)._replace(config=config)
        if config.mode != "append" and len(cache.blocks) > config.period:
            cache = reference.hex_recompress(cache)
    return cache


@mutant(
    "hex_recompress",
    "mass is spent by the first recompression",
    killer="hex/test_cache.py::test_full_changes_no_code_where_mask_and_groups_stay",
)
def mass_used_up(cache):
    """Begin to count anew."""
    after = reference.hex_recompress(cache)
    return after._replace(mass=torch.zeros_like(after.mass))


@mutant(
    "hex_append",
    "tokens are put in front of the buffer",
    killer="hex/test_stream.py::test_any_sequence_of_steps_keeps_order_count_residual_and_bytes",
)
def wrong_end(cache, queries, keys, values):
    """Reverse the order of what arrives."""
    return reference.hex_append(cache, queries, keys.flip(-2), values.flip(-2))


@mutant(
    "hex_recompress",
    "the oracle compresses what the cache holds",
    killer="hex/test_cache.py::test_full_from_originals_is_compressing_once",
)
def oracle_is_blind(cache):
    """Forget the originals."""
    full = cache._replace(config=cache.config._replace(mode="full"))
    return reference.hex_recompress(full)._replace(config=cache.config)


@mutant(
    "hex_read",
    "the residual buffer comes first",
    killer="hex/test_cache.py::test_the_residual_buffer_is_exact_and_last",
)
def residual_first(cache):
    """Join in the wrong order."""
    left = cache.residual_keys.shape[-2]
    return tuple(x.roll(left, -2) for x in reference.hex_read(cache))


@mutant(
    "hex_bytes",
    "steps and minima weigh nothing",
    killer="hex/test_size.py::test_the_parts_are_every_byte_stored",
)
def free_scales(cache):
    """Count codes and kept entries alone."""
    return HexBytes(*reference.hex_bytes(cache)._replace(scales=0))


@mutant(
    "hex_size",
    "scales are in half precision whatever the cache",
    killer="hex/test_size.py::test_a_prompt_weighs_what_was_said_beforehand",
)
def always_half_scales(config, tokens, kv_heads=8, width=128, dtype=torch.float16):
    """Store every scale in two bytes."""
    size = reference.hex_size(config, tokens, kv_heads, width, dtype)
    half = reference.hex_size(config._replace(scales=None), tokens, kv_heads, width)
    return size._replace(scales=half.scales)


@mutant(
    "hex_size",
    "scales are numbers of the cache's own type",
    killer="hex/test_size.py::test_a_size_is_its_formula",
)
def scales_of_the_cache(config, tokens, kv_heads=8, width=128, dtype=torch.float16):
    """Weigh a scale like any number."""
    size = reference.hex_size(config, tokens, kv_heads, width, dtype)
    like = reference.hex_size(config._replace(scales=torch.float16), tokens, kv_heads, width)
    return size._replace(scales=like.scales // 2 * dtype.itemsize)


@mutant(
    "hex_size",
    "no mode remembers the mass of what is compressed",
    killer="hex/test_size.py::test_a_size_is_its_formula",
)
def mass_of_the_buffer_alone(config, tokens, kv_heads=8, width=128, dtype=torch.float16):
    """Count mass as in append mode."""
    size = reference.hex_size(config, tokens, kv_heads, width, dtype)
    append = config._replace(mode="append")
    return size._replace(mass=reference.hex_size(append, tokens, kv_heads, width, dtype).mass)


@mutant(
    "hex_size",
    "a token is one value group however its heads are quantised",
    killer="hex/test_size.py::test_a_size_is_its_formula",
)
def one_group_a_token(config, tokens, kv_heads=8, width=128, dtype=torch.float16):
    """Forget the heads."""
    plain = config._replace(value_group="token")
    return reference.hex_size(plain, tokens, kv_heads, width, dtype)


@mutant(
    "paper_size",
    "prompts leave nothing in the buffer",
    killer="hex/test_size.py::test_a_size_beside_a_printed_one_is_the_mean_over_prompts",
)
def whole_blocks_only(prompts=(900, 1304, 1021), kv_heads=8, width=128):
    """Cut every prompt at a block."""
    whole = tuple(max(96, length // 96 * 96) for length in prompts)
    return reference.paper_size(whole, kv_heads, width)


@mutant(
    "hex_preset",
    "heavy hitters are 2, not 2 %",
    killer="hex/test_presets.py::test_table_4_has_ten_rows_of_settings",
)
def percent_forgotten(name):
    """Read every percentage as a share."""
    config = reference.hex_preset(name)
    return config._replace(heavy=min(1.0, 100 * config.heavy))


@mutant(
    "sensitivity",
    "decoded queries see the exact cache",
    killer="hex/test_sensitivity.py::test_keeping_everything_costs_no_error_and_more_bytes",
)
def no_error_at_all(queries, keys, values, prompt, configs):
    """Report an error of nought."""
    rows = reference.sensitivity(queries, keys, values, prompt, configs)
    return tuple(row._replace(error=torch.zeros_like(row.error)) for row in rows)
