"""Mutants of H2O."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/h2o")
mutant("""
test_mass_is_what_every_query_of_the_group_hands_out
  mean_over_the_group: mass is averaged over the group
  - first:seen] += weights[h, 0]
  + first:seen] += weights[h, 0] / group
  mass_of_the_layer: mass is summed over all heads of the layer
  - total[row][h // group, first:seen] +=
  + total[row][:, first:seen] +=
scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[h2o]
  mass_with_padding: padding is attended to
  - cache, log_sum_exp=log_sum)
  + keys[row][:, :seen], log_sum_exp=log_sum)[..., first:]
test_a_weight_is_what_the_log_sum_exp_leaves_of_a_logit
  sum_of_the_query_before: the log-sum-exp is that of the query before
  - known_of(log_sum_exp, slice(q, q + 1), row)
  + None if log_sum_exp is None else log_sum_exp[row][:, q - 1, None]
test_chunks_and_single_steps_add_up_to_the_whole_prompt
  forgetful_mass: only the last queries count
  - total[..., : mass.shape[-1]] = mass
  + total[..., : mass.shape[-1]] = 0
test_the_mass_is_the_score_of_protected_tokens_too
  sentinel_for_recent: recent tokens get a higher score
  - widen(mass), 0)
  + widen(mass) + last, 0)
test_half_are_recent_and_half_the_heaviest_of_the_others
  nobody_protected: heavy hitters may be recent tokens, so that there are fewer of the others
  - real & last
  + real & False
test_the_last_real_tokens_are_protected_half_the_budget_unless_told
  larger_half: the recent half is rounded up
  - recent = keep // 2 if
  + recent = (keep + 1) // 2 if
vector:a-decoded-query-sees-the-whole-cache
  aligned_at_the_front: the first query is aligned with the first key
  - seen = tokens - count + q + 1
  + seen = q + 1
""")
