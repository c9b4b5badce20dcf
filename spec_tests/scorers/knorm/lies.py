"""Lies about scoring by the length of keys."""

from spec_tests.mutants.make import lies

lie = lies("scorers/knorm")
lie("""
test_a_score_is_minus_the_length_of_the_key
  squared_lengths: lengths are squared
  - root(squares)
  + squares
test_the_longest_real_key_of_a_head_is_shifted_to_zero
  longest_of_the_layer: lengths are compared over all heads
  - lengths.amax(-1, keepdim=True) if shift and keys.shape[-2] else 0
  + lengths.amax((-2, -1), keepdim=True) if shift and lengths.numel() else 0
scorers/scored/test_laws.py::test_what_stands_at_padding_changes_nothing[knorm]
  longest_padding: padding may be the longest
  - torch.where(real, lengths, 0)
  + lengths
test_scores_scale_with_the_keys
  squares_as_they_come: squares of small numbers vanish
  -     (keys, power), valid = balanced(widen(keys)), real_tokens(valid, keys)
  +     keys, valid = widen(keys) / 2.0**40, real_tokens(valid, keys)
  +     power = keys.new_full((1,), 2.0**40)
""")
