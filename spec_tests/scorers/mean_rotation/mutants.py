"""Mutants of the mean rotation."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/mean_rotation")
mutant("""
test_it_is_the_mean_of_the_rotated_vectors
  turned_back: the turn is the other way round
  - angles = (first + step)
  + angles = -(first + step)
  middle_position: the middle position stands for all
  - angles = (first + step)
  + angles = (first + future // 2)
vector:halves-turn-together
  neighbours_turn: neighbouring channels turn together
  -     return (total / future)
  +     order = torch.arange(2 * half).reshape(2, half).T.flatten()
  +     return (total[..., order, :][..., order] / future)
""")
