"""Mutants of FastKVzip's gate and its loss."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/fastkvzip")
mutant("""
test_scores_agree_with_scalar_loops
  bias_twice: the bias is added twice
  - + gate.bias[h, g]
  + + 2 * gate.bias[h, g]
  no_epsilon: the norm has no epsilon
  - + epsilon).sqrt()
  + + 1e-30).sqrt()
  mean_rival: the token competes with the mean of the learned keys
  - rivals.logsumexp(-1)
  + rivals.exp().mean(-1).log()
vector:cross-entropy-of-real-tokens
  padding_judged: padding counts in the mean
  - entropy.movedim(-2, 0)[:, valid]
  + entropy
test_the_loss_agrees_with_scalar_loops
  squared_error: the loss is a squared error
  - F.binary_cross_entropy(
  + F.mse_loss(
  loss_averaged_over_heads: the loss is averaged over heads, not summed
  - entropy.mean() * scores.shape[-2]
  + entropy.mean()
""")
