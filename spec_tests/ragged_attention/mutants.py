"""Mutants of attention over heads of different lengths."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("ragged_attention")
mutant("""
vector:two-heads-of-one-and-three-entries
  neighbours_entries: a head also attends to the entries of the next head
  - int(cache.offsets[number + 1])
  + int(cache.offsets[min(number + 2, len(cache.offsets) - 1)])
vector:later-new-tokens-are-not-seen
  new_tokens_from_the_future: a query attends to new tokens after its own
  - if not (causal and j > position)
  + if not (causal and j > tokens)
test_a_query_that_sees_nothing_reads_nothing
  padding_sees_nothing: a query at padding does not see its own token
  - bool(valid[(*row, j)]) or (causal and j == position)
  + bool(valid[(*row, j)])
test_each_head_attends_to_its_own_entries_and_to_the_new_tokens
  ragged_heads_dealt_in_turn: query head h uses the entries of head h modulo their number
  - index = (*row, h // group)
  + index = (*row, h % keys.shape[-3])
test_the_log_sum_exp_is_that_of_every_logit_that_a_query_sees
  sum_without_the_scale: the log-sum-exp is that of logits at the usual scale
  - scaled_logits(query, left[None], False, scale)
  + scaled_logits(query, left[None], False, None)
test_attention_to_entries_merges_with_attention_to_new_tokens
  sum_to_base_two: the log-sum-exp is a logarithm to base two
  - RaggedAttention(output, sums)
  + RaggedAttention(output, sums * 1.4426950408889634)
""")
