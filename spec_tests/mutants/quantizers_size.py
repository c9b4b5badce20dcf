"""Mutants of what the quantised caches weigh."""

import torch

import reference
from reference import PaperSize, QuantizerBytes
from spec_tests.mutants.make import mutant

SIZE = "quantizers/test_size.py::test_"
PUBLISHED = "quantizers/test_published.py::test_"


@mutant(
    "quantizer_bytes",
    "outliers are counted without their places",
    killer=SIZE + "the_parts_are_what_they_are_called",
)
def bytes_without_places(cache):
    """Count the numbers alone."""
    size = reference.quantizer_bytes(cache)
    return size._replace(outliers=size.outliers * 2 // 3)


@mutant(
    "quantizer_bytes",
    "steps are counted and minima are not",
    killer=SIZE + "the_parts_are_every_byte_stored",
)
def bytes_without_minima(cache):
    """Count half the scales."""
    size = reference.quantizer_bytes(cache)
    return size._replace(scales=size.scales // 2)


@mutant(
    "kivi_size",
    "keys stay exact as long as values do",
    killer=SIZE + "a_prompt_weighs_in_kivis_cache_what_was_said_beforehand",
)
def kivi_size_of_values_twice(
    tokens, bits=2, group=32, residual=32, kv_heads=8, width=128, dtype=torch.float16
):
    """Count keys as values."""
    layout = bits, group, residual, kv_heads, width, dtype
    both = reference.kivi_size(tokens, *layout)
    keys = reference.kivi_size(tokens // residual * residual + residual - 1, *layout)
    return QuantizerBytes(*(max(pair) for pair in zip(both, keys, strict=True)))


@mutant(
    "gear_size",
    "factors are as long as the prompt on both sides",
    killer=SIZE + "a_prompt_weighs_in_gears_cache_what_was_said_beforehand",
)
def factors_of_square_errors(
    tokens, bits=4, outliers=0.02, rank=4, kv_heads=8, width=128, dtype=torch.float16
):
    """Count the left factor twice."""
    size = reference.gear_size(tokens, bits, outliers, rank, kv_heads, width, dtype)
    return size._replace(factors=4 * dtype.itemsize * kv_heads * min(rank, tokens, width) * tokens)


@mutant(
    "kivi_share",
    "a group has one scale",
    killer=PUBLISHED + "the_sizes_printed_for_kivi_are_a_formula_of_three_prompts",
)
def one_scale_a_group(bits, group, residual, tokens):
    """Forget the minimum."""
    return reference.kivi_share(bits, 2 * group, residual, tokens)


@mutant(
    "quantizer_sizes",
    "prompts are averaged before they are weighed",
    killer=PUBLISHED + "ours_is_the_mean_over_prompts",
)
def size_of_the_mean_prompt(prompts=(900, 1304, 1021), kv_heads=8, width=128):
    """Weigh a prompt of the mean length."""
    mean = sum(prompts) // len(prompts)
    rows = reference.quantizer_sizes((mean,), kv_heads, width)
    return tuple(PaperSize(*row) for row in rows)


@mutant(
    "quantizer_sizes",
    "every model has eight heads",
    killer=PUBLISHED + "ours_is_what_the_layouts_weigh",
)
def eight_heads(prompts=(900, 1304, 1021), kv_heads=8, width=128):
    """Weigh the default model."""
    return reference.quantizer_sizes(prompts, 8, width)


@mutant(
    "gear_size",
    "a place takes two bytes in the longest row",
    killer="test_vectors.py::test_vector[quantizers-gear-places-of-a-row-of-32769-take-four-bytes]",
)
def short_places(tokens, bits=4, outliers=0.02, rank=4, kv_heads=8, width=128, dtype=torch.float16):
    """Count two bytes a place whatever the length."""
    size = reference.gear_size(tokens, bits, outliers, rank, kv_heads, width, dtype)
    rows = ((kv_heads * width, tokens), (tokens, kv_heads * width))
    count = sum(2 * each * int(outliers * members / 2) for each, members in rows)
    return size._replace(outliers=min(size.outliers, count * (dtype.itemsize + 2)))
