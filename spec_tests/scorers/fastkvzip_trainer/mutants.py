"""Mutants of the trainer of FastKVzip's gate."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/fastkvzip_trainer")
mutant("""
test_a_fresh_gate_is_uniform_within_the_root_of_the_width
  GaussianGate: projections are drawn from a Gaussian
  - torch.rand(shape
  + torch.randn(shape
test_steps_go_down_the_slope_of_the_loss_with_momentum
  no_momentum: there is no momentum
  - m.mul_(momentum)
  + m.zero_()
  constant_rate: the learning rate is constant
  - rate * _pace(i, steps)
  + rate
  bias_twice_in_training: the bias is added twice in training
  - fastkvzip(hidden, self.weights(),
  + fastkvzip(hidden, self.weights()._replace(bias=2 * self.bias),
test_the_first_hundredth_of_the_steps_is_slow
  no_warmup: the first steps use the full learning rate
  - return i / 100
  + return float(i > 0)
test_a_token_is_seen_again_only_after_the_others
  drawn_anew: every step draws from all tokens again
  - if pack == 0:
  + if i >= 0:
test_without_steps_the_weights_are_those_of_a_fresh_gate
  seed_ignored: the seed is ignored
  - learned, seed, exact
  + learned, 0, exact
test_learned_keys_stay_alike_unless_they_start_apart
  always_apart: learned keys start different from each other
  - seed, exact, spread
  + seed, exact, 1.0
""")
