"""Lies about H2O."""

import reference
from spec_tests.mutants.make import lies, mutant, weighed

lie = lies("scorers/h2o")

lie(
    "mass_of_the_layer",
    "mass is summed over all heads of the layer",
    "total[row][h // group, first:seen] +=",
    "total[row][:, first:seen] +=",
    "test_mass_is_what_every_query_of_the_group_hands_out",
)
lie(
    "mean_over_the_group",
    "mass is averaged over the group",
    "first:seen] += weights[h, 0]",
    "first:seen] += weights[h, 0] / group",
    "test_every_real_query_of_every_head_adds_one",
)
lie(
    "mass_with_padding",
    "padding is attended to",
    "keys[row][:, first:seen])",
    "keys[row][:, :seen])[..., first:]",
    "scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[h2o]",
)
lie(
    "forgetful_mass",
    "only the last queries count",
    "total[..., : mass.shape[-1]] = mass",
    "total[..., : mass.shape[-1]] = 0",
    "test_chunks_and_single_steps_add_up_to_the_whole_prompt",
)
lie(
    "sentinel_for_recent",
    "recent tokens score a sentinel",
    "widen(mass), 0)",
    "widen(mass) + (place >= tokens - recent), 0)",
    "test_the_mass_is_the_score_of_protected_tokens_too",
)
lie(
    "nobody_protected",
    "heavy hitters may be recent, so that fewer others are",
    "real & (place >= tokens - recent)",
    "real & False",
    "test_half_are_recent_and_half_the_heaviest_of_the_others",
)
lie(
    "larger_half",
    "the recent half is rounded up",
    "recent = keep // 2 if",
    "recent = (keep + 1) // 2 if",
    "test_the_last_real_tokens_are_protected_half_the_budget_unless_told",
)


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
