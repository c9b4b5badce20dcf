"""Mutants of GraphKV: the graph and its signals."""

import torch

import reference
from reference.precision import widen
from spec_tests.mutants.make import mutant

GRAPH = "graphkv/test_graph.py::test_"
NEIGHBOURS = "graphkv/test_graph_neighbours.py::test_"
DECAY = "graphkv/test_decay.py::test_"
VECTOR = "test_vectors.py::test_vector[graphkv-"


@mutant("source_count", "shares in binary", killer=f"{VECTOR}shares-are-decimal]")
def binary_share(keep, fraction=0.3, window=0):
    """Multiply floats."""
    return max(1, int(fraction * (keep - window)))


@mutant(
    "source_count",
    "a small budget has no source",
    killer=f"{GRAPH}sources_are_the_share_of_the_budget_rounded_down",
)
def no_source_at_all(keep, fraction=0.3, window=0):
    """Forget the minimum."""
    return reference.source_count(keep, fraction, window) if fraction * (keep - window) >= 1 else 0


@mutant(
    "source_tokens",
    "the last of equal scores comes first",
    killer=f"{GRAPH}sources_are_the_best_content_tokens_in_order_the_first_of_equals_first",
)
def last_of_equal_scores(scores, count, protected=None):
    """Sort the reversed scores."""
    aside = None if protected is None else protected.flip(-1)
    return scores.shape[-1] - 1 - reference.source_tokens(scores.flip(-1), count, aside)


@mutant(
    "source_tokens",
    "protected tokens are sources",
    killer=f"{GRAPH}sources_are_the_best_content_tokens_in_order_the_first_of_equals_first",
)
def protected_sources(scores, count, protected=None):
    """Forget the mask."""
    return reference.source_tokens(scores, count)


@mutant("edges", "no lengths", killer=f"{GRAPH}the_graph_is_that_of_algorithm_1")
def inner_product(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Leave the quotient out."""
    return keys.take_along_dim(sources[..., None], -2) @ keys.mT


@mutant(
    "edges",
    "cosine in half precision",
    killer=f"{GRAPH}a_key_scaled_by_any_other_number_has_the_same_edges_up_to_rounding",
)
def half_precision_cosine(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Normalise, then multiply, in bfloat16."""
    unit = torch.nn.functional.normalize(keys.bfloat16(), dim=-1)
    return (unit.take_along_dim(sources[..., None], -2) @ unit.mT).float()


@mutant(
    "edges",
    "rounding leaves [-1, 1]",
    killer=f"{GRAPH}no_edge_leaves_the_interval_from_minus_1_to_1",
)
def unbounded_cosine(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Forget to bound the quotient."""
    keys = widen(keys)
    unit = keys / keys.square().sum(-1, keepdim=True).sqrt()
    return unit.take_along_dim(sources[..., None], -2) @ unit.mT


@mutant("edges", "0/0 is NaN", killer=f"{GRAPH}a_vector_of_length_0_is_like_nothing")
def undefined_edges(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Divide by the length, whatever it is."""
    weights = reference.edges(keys, sources, kind, queries, values, clamp)
    length = keys.square().sum(-1)
    return weights * (length / length)[..., None, :]


@mutant(
    "edges",
    "from the token to the source",
    killer=f"{GRAPH}each_kind_compares_the_vectors_it_names_source_first",
)
def backward_edges(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Swap the ends."""
    ends = {"k": keys, "q": queries, "v": values}
    both = torch.cat([ends[kind[1]], ends[kind[0]]], -2)
    return reference.edges(both, sources, clamp=clamp)[..., keys.shape[-2] :]


@mutant(
    "edges",
    "the first query stands for its group",
    killer=f"{GRAPH}grouped_queries_count_as_their_mean",
)
def first_of_the_group(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Take every G-th query head."""
    group = 1 if queries is None else queries.shape[-3] // keys.shape[-3]
    queries = None if queries is None else queries[..., ::group, :, :]
    return reference.edges(keys, sources, kind, queries, values, clamp)


@mutant("edges", "magnitudes", killer=f"{GRAPH}clamping_replaces_negative_edges_by_0")
def folded_edges(keys, sources, kind="kk", queries=None, values=None, clamp=False):
    """Take the magnitude where the positive part is asked for."""
    weights = reference.edges(keys, sources, kind, queries, values)
    return weights.abs() if clamp else weights


@mutant(
    "neighbour_count",
    "tokens for thousands of tokens",
    killer=f"{VECTOR}eight-of-64-neighbours-at-8000-tokens]",
)
def neighbours_by_tokens(predefined, length):
    """Compare with the length itself."""
    return min(predefined, length)


@mutant("neighbour_count", "not adapted", killer=f"{VECTOR}a-thousand-begun-does-not-count]")
def fixed_neighbour_count(predefined, length):
    """Return the number set beforehand."""
    return predefined


@mutant("neighbour_count", "at least one", killer=f"{VECTOR}no-neighbour-at-500-tokens]")
def one_neighbour_at_least(predefined, length):
    """Round half a neighbour up."""
    return min(predefined, max(1, length // 1000))


@mutant(
    "neighbour_count",
    "the nearest thousand",
    killer=f"{GRAPH}each_full_thousand_of_tokens_adds_a_neighbour_up_to_those_set_beforehand",
)
def nearest_thousand(predefined, length):
    """Round to the nearest."""
    return min(predefined, round(length / 1000))


@mutant(
    "neighbours",
    "every edge that is at least the m-th",
    killer=f"{NEIGHBOURS}a_source_has_exactly_as_many_neighbours_as_asked_or_as_there_are",
)
def neighbours_by_threshold(weights, sources, count, protected=None, spare_sources=False):
    """Compare with the weakest edge taken."""
    reached = reference.neighbours(weights, sources, count, protected, spare_sources)
    most = reference.neighbours(weights, sources, weights.shape[-1], protected, spare_sources)
    if not weights.numel():
        return reached
    last = weights.masked_fill(~reached, torch.inf).amin(-1, keepdim=True)
    return most & (weights >= last)


@mutant("neighbours", "j = i", killer=f"{NEIGHBOURS}no_source_is_its_own_neighbour")
def own_neighbours(weights, sources, count, protected=None, spare_sources=False):
    """Count the source in."""
    reached = reference.neighbours(weights, sources, count, protected, spare_sources)
    return reached.scatter(-1, sources[..., None], count > 0)


@mutant("neighbours", "protected", killer=f"{NEIGHBOURS}no_protected_token_is_a_neighbour")
def protected_neighbours(weights, sources, count, protected=None, spare_sources=False):
    """Forget the mask."""
    return reference.neighbours(weights, sources, count, spare_sources=spare_sources)


@mutant("neighbours", "none spared", killer=f"{NEIGHBOURS}a_spared_source_is_nobodys_neighbour")
def unspared_sources(weights, sources, count, protected=None, spare_sources=False):
    """Forget the flag."""
    return reference.neighbours(weights, sources, count, protected)


@mutant(
    "neighbours",
    "the last of equal edges",
    killer=f"{NEIGHBOURS}neighbours_are_at_the_strongest_edges_the_first_of_equals_first",
)
def last_of_equal_edges(weights, sources, count, protected=None, spare_sources=False):
    """Look at the tokens from the end."""
    aside = None if protected is None else protected.flip(-1)
    mirrored = weights.shape[-1] - 1 - sources
    reached = reference.neighbours(weights.flip(-1), mirrored, count, aside, spare_sources)
    return reached.flip(-1)
