"""Mutants of StreamingLLM."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/streaming_llm")
mutant("""
test_the_sinks_are_the_first_real_tokens
  sinks_at_padding: sinks are the first tokens, even if they are padding
  - protected = valid[..., None, :] & (position <= sinks)
  + protected = (valid | True).cumsum(-1)[..., None, :].expand(keys.shape[:-1]) <= sinks
test_a_score_is_the_number_of_real_tokens_up_to_it
  oldest_first: the oldest tokens are kept
  - Scored(position.to(
  + Scored(-position.to(
  sentinel_for_sinks: sinks get the highest score
  - Scored(position.to(
  + Scored(position.masked_fill(protected, 2**31).to(
scorers/scored/test_laws.py::test_scores_are_finite_float32_or_float64_whatever_is_protected[streaming_llm]
  positions_as_narrow_as_the_keys: scores have the dtype of the keys
  - widen(keys.new_empty(0)).dtype
  + keys.dtype
scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[streaming_llm]
  padding_counted_below_zero: padding has negative scores
  - Scored(position.to(
  + Scored((position - (position == 0) * 1).to(
""")
