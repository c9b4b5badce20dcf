"""Mutants of KNorm."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/knorm")
mutant("""
test_a_score_is_minus_the_length_of_the_key
  squared_lengths: lengths are squared
  - widen(keys).norm(dim=-1)
  + widen(keys).square().sum(-1)
test_the_longest_real_key_of_a_head_is_shifted_to_zero
  longest_of_the_layer: scores are shifted by the longest key of all heads
  - lengths.amax(-1, keepdim=True) if shift and keys.shape[-2] else 0
  + lengths.amax((-2, -1), keepdim=True) if shift and lengths.numel() else 0
scorers/scored/test_laws.py::test_what_stands_at_padding_changes_nothing[knorm]
  longest_padding: padding may have the longest key
  - torch.where(real, lengths, 0)
  + lengths
""")
