"""Mutants of expected attention."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/expected_attention")
mutant("""
test_scores_agree_with_scalar_loops
  epsilon_ignored: epsilon is ignored
  - (scores + epsilon) * values
  + scores * values
  values_ignored: scores are not multiplied by the length of values
  - (scores + epsilon) * values.to(exact).norm(dim=-1)
  + scores + epsilon
  width_ignored: logits are not divided by the root of the width
  - key @ mean / math.sqrt(width)
  + key @ mean
test_scores_are_in_the_ratio_of_mean_exponentials
  covariance_whole: the covariance is not halved
  - / (2 * width)
  + / width
vector:a-covariance-is-over-twice-the-width
  covariance_ignored: the covariance is ignored
  - ((key @ covariance) * key).sum(-1) / (2 * width)
  + 0
test_sinks_are_protected_and_the_rest_scores_as_without_them_and_padding
  expected_padding_seen: padding is in the softmax
  - logits.softmax(-1)
  + torch.cat([logits.new_zeros(first), logits]).softmax(-1)[first:]
  sinks_shared: sinks are in the softmax
  -         start = first + sinks
  -         protected[row][:, first:start] = True
  +         start, protected[row][:, first : first + sinks] = first, True
vector:the-groups-attention-is-averaged
  expected_group_max: the largest score of a group counts, not the mean
  - start:] += logits.softmax(-1) / group
  + start:].clamp_(min=logits.softmax(-1))
test_scores_agree_with_scalar_loops[4]
  expected_heads_in_turn: query head h uses key head h modulo the number of key heads
  -             mean = turn @ statistics.mean[row][h].to(exact)
  -             covariance = turn @ statistics.covariance[row][h]
  +             asking = h % group * keys.shape[-3] + h // group
  +             mean = turn @ statistics.mean[row][asking].to(exact)
  +             covariance = turn @ statistics.covariance[row][asking]
""")
