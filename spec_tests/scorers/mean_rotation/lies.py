"""Lies about the mean rotation."""

from spec_tests.mutants.make import lies

lie = lies("scorers/mean_rotation")

lie(
    "turned_back",
    "the turn is the other way round",
    "angles = (first + step)",
    "angles = -(first + step)",
    "test_it_is_the_mean_of_the_rotated_vectors",
)
lie(
    "neighbours_turn",
    "neighbouring channels turn together",
    "    return (total / future)",
    "    order = torch.arange(2 * half).reshape(2, half).T.flatten()\n"
    "    return (total[..., order, :][..., order] / future)",
    "vector:halves-turn-together",
)
lie(
    "middle_position",
    "the middle position stands for all",
    "angles = (first + step)",
    "angles = (first + future // 2)",
    "test_stretches_average_to_the_whole",
)
