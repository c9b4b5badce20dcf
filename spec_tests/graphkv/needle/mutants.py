"""Mutants of the place of a needle, and of its recall."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("graphkv/needle")
mutant("""
vector:a-needle-halfway-down
  deeper_needle: the depth is a share of the whole input
  - int(Fraction(str(depth)) * around)
  + min(around, int(depth * length))
vector:a-depth-is-decimal
  binary_depth: the depth is computed in binary
  - int(Fraction(str(depth)) * around)
  + int(depth * around)
test_a_needle_stands_whole_in_the_first_tokens_of_its_haystack
  longer_input: the needle lengthens the input, since the haystack keeps its length
  - around = length - len(needle)
  + around = len(haystack)
test_depths_from_0_to_1_reach_every_place
  next_place: the place is rounded up
  - int(Fraction(str(depth)) * around)
  + -int(-Fraction(str(depth)) * around // 1)
test_order_and_repetition_of_words_change_no_recall
  repeated_words: a word counts as often as it occurs in the response
  - len(wanted & set(responses[cell].tolist()))
  + sum(word in wanted for word in responses[cell].tolist())
test_a_response_is_worth_the_words_of_the_answer_in_it
  precision_of_words: the share of the response that is in the answer
  - / len(wanted)
  + / max(1, responses.shape[-1])
""")
