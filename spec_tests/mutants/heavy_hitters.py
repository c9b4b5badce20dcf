"""Mutants of HEX's heavy hitters."""

import math

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "attention_mass",
    "weights are a softmax over the span alone",
    killer="test_vectors.py::test_vector[kcvt-a-span-is-weighed-by-a-softmax-over-everything]",
)
def mass_of_the_span_alone(queries, keys, span=None, causal=True, normalize=False):
    """Cut the keys before the softmax."""
    tokens = keys.shape[-2]
    keys = keys[..., tokens - (tokens if span is None else span) :, :]
    queries = queries[..., max(0, queries.shape[-2] - keys.shape[-2]) :, :]
    return reference.attention_mass(queries, keys, None, causal, normalize)


@mutant(
    "attention_mass",
    "queries are three times as long",
    killer="hex/test_heavy_hitters.py::test_the_mass_of_a_token_is_every_weight_on_it_summed",
)
def loud_queries(queries, keys, span=None, causal=True, normalize=False):
    """Multiply the logits."""
    return reference.attention_mass(3 * queries, keys, span, causal, normalize)


@mutant(
    "attention_mass",
    "logits are not divided by the root of the width",
    killer="test_vectors.py::test_vector[kcvt-logarithms-of-whole-numbers-are-weights-in-their-ratio]",
)
def unscaled_mass(queries, keys, span=None, causal=True, normalize=False):
    """Undo the scale."""
    louder = queries * queries.shape[-1] ** 0.5
    return reference.attention_mass(louder, keys, span, causal, normalize)


@mutant(
    "attention_mass",
    "mass is averaged over the heads",
    killer="hex/test_heavy_hitters.py::test_the_mass_of_all_tokens_is_queries_times_heads",
)
def mean_over_heads(queries, keys, span=None, causal=True, normalize=False):
    """Divide by the number of heads."""
    return reference.attention_mass(queries, keys, span, causal, normalize) / queries.shape[-3]


@mutant(
    "heavy_hitter_mask",
    "the count is rounded to the nearest",
    killer="hex/test_heavy_hitters.py::test_heavy_hitters_are_exactly_as_many_as_the_floor",
)
def count_to_the_nearest(mass, ratio=0.02, recent=0, outside_recent=False):
    """Round where the count is rounded down."""
    tokens = mass.shape[-1]
    share = round(ratio * tokens) / max(1, tokens)
    return reference.heavy_hitter_mask(mass, math.nextafter(share, 2), recent, outside_recent)


@mutant(
    "heavy_hitter_mask",
    "every token as heavy as the lightest heavy hitter is one",
    killer="hex/test_heavy_hitters.py::test_of_equal_masses_the_earliest_are_heavy",
)
def heavy_by_threshold(mass, ratio=0.02, recent=0, outside_recent=False):
    """Compare with the smallest mass chosen."""
    heavy = reference.heavy_hitter_mask(mass, ratio, recent, outside_recent)
    if mass.shape[-1] == 0:
        return heavy
    return mass >= mass.masked_fill(~heavy, torch.inf).amin(-1, keepdim=True)


@mutant(
    "recent_mask",
    "a window of none is a window of all",
    killer="hex/test_heavy_hitters.py::test_the_window_is_the_last_tokens",
)
def minus_zero_slice(tokens, recent):
    """Slice from minus nought."""
    window = torch.zeros(tokens, dtype=torch.bool)
    window[-recent:] = True
    return window


@mutant(
    "h2o_mask",
    "heavy hitters are taken outside the window unasked",
    killer="hex/test_heavy_hitters.py::test_the_dynamic_mask_is_the_union",
)
def never_both(mass, ratio=0.02, recent=8, outside_recent=False):
    """Exclude the window always."""
    return reference.h2o_mask(mass, ratio, recent, outside_recent=True)
