"""Mutants of the mean rotation."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("scorers/mean_rotation")
mutant("""
test_it_is_the_mean_of_the_rotated_vectors
  turned_back: the rotation has the opposite direction
  - angles = (first + step)
  + angles = -(first + step)
  middle_position: the middle position is used for all positions
  - angles = (first + step)
  + angles = (first + future // 2)
vector:halves-turn-together
  neighbours_turn: adjacent channels are rotated together
  -     return (total / future)
  +     order = torch.arange(2 * half).reshape(2, half).T.flatten()
  +     return (total[..., order, :][..., order] / future)
""")
