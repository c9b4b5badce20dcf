"""Lies about H2O."""

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import mutant, weighed


@mutant(
    "h2o_mass",
    "mass is summed over all heads of the layer",
    killer="scorers/h2o/test_laws.py::test_mass_is_what_every_query_of_the_group_hands_out",
)
def mass_of_the_layer(queries, keys, mass=None, valid=None):
    """Give every key head the same."""
    total = reference.h2o_mass(queries, keys, mass, valid)
    return total.sum(-2, keepdim=True).expand(total.shape).clone()


@mutant(
    "h2o_mass",
    "mass is averaged over the group",
    killer="scorers/h2o/test_laws.py::test_every_real_query_of_every_head_adds_one",
)
def mean_over_the_group(queries, keys, mass=None, valid=None):
    """Divide what is new by the query heads of a key head."""
    new = reference.h2o_mass(queries, keys, None, valid)
    old = reference.h2o_mass(queries[..., :0, :], keys, mass, valid)
    return old + new / max(1, queries.shape[-3] // max(1, keys.shape[-3]))


@mutant(
    "h2o_mass",
    "padding is attended to",
    killer="scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[h2o]",
)
def mass_with_padding(queries, keys, mass=None, valid=None):
    """Mask the columns after the softmax."""
    total = reference.h2o_mass(queries, keys, mass)
    return total if valid is None else torch.where(valid[..., None, :], total, 0)


@mutant(
    "h2o_mass",
    "only the last queries count",
    killer="scorers/h2o/test_laws.py::test_chunks_and_single_steps_add_up_to_the_whole_prompt",
)
def forgetful_mass(queries, keys, mass=None, valid=None):
    """Start anew with every chunk."""
    return reference.h2o_mass(queries, keys, None, valid)


@mutant(
    "h2o_mass",
    "the first query sits at the first key",
    killer="test_vectors.py::test_vector[h2o-a-decoded-query-sees-the-whole-cache]",
)
def aligned_at_the_front(queries, keys, mass=None, valid=None):
    """Let a chunk see no more keys than it has queries."""
    count = queries.shape[-2]
    total = reference.h2o_mass(queries[..., :0, :], keys, mass, valid)
    seen = None if valid is None else valid[..., :count]
    total[..., :count] += reference.h2o_mass(queries, keys[..., :count, :], None, seen)
    return total


@mutant(
    "h2o_mass",
    "all weights are held at once",
    killer="scorers/h2o/test_laws.py::test_nothing_of_queries_by_tokens_is_allocated",
)
def all_weights_at_once(queries, keys, mass=None, valid=None):
    """Sum a matrix of queries by tokens."""
    old = reference.h2o_mass(queries[..., :0, :], keys, mass, valid)
    return old + weighed(queries, keys).sum((-3, -2))


@mutant(
    "h2o",
    "recent tokens score a sentinel",
    killer="scorers/h2o/test_laws.py::test_the_mass_is_the_score_of_protected_tokens_too",
)
def sentinel_for_recent(mass, keep, valid=None, recent=None):
    """Write one more than the maximum where a token is protected."""
    scores, protected = reference.h2o(mass, keep, valid, recent)
    return Scored(torch.where(protected, scores + 1, scores), protected)


@mutant(
    "h2o",
    "heavy hitters may be recent, so that fewer others are",
    killer="scorers/h2o/test_laws.py::test_half_are_recent_and_half_the_heaviest_of_the_others",
)
def nobody_protected(mass, keep, valid=None, recent=None):
    """Rank everything."""
    scores, protected = reference.h2o(mass, keep, valid, recent)
    return Scored(scores, torch.zeros_like(protected))


@mutant(
    "h2o",
    "the recent half is rounded up",
    killer="scorers/h2o/test_laws.py::test_the_last_real_tokens_are_protected_half_the_budget_unless_told",
)
def larger_half(mass, keep, valid=None, recent=None):
    """Give the odd token to the window."""
    return reference.h2o(mass, keep, valid, (keep + 1) // 2 if recent is None else recent)
