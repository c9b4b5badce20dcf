"""Mutants of the spectrum of a mask, and of the Ramanujan test."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/spectrum")
mutant("""
vector:bound-of-the-block-mask
  bound_at_the_mean_degree: the bound is that of two equal degrees, the mean degree
  - return math.sqrt(token_degree - 1) + math.sqrt(channel_degree - 1)
  + return 2 * math.sqrt((token_degree + channel_degree) / 2 - 1)
test_the_first_singular_value_occurs_once_for_each_component
  skip_repeated_values: singular values equal to the first are skipped
  -     return torch.linalg.svdvals(mask.double())[1].item()
  +     values = torch.linalg.svdvals(mask.double()).tolist()
  +     return next((value for value in values if value < values[0] - 1 / 8), 0.0)
test_large_circulant_masks_have_the_singular_values_of_fourier
  stop_early: power iteration stops after two steps
  -     return torch.linalg.svdvals(mask.double())[1].item()
  +     matrix = mask.double() - mask.double().mean()
  +     x = torch.linspace(-1, 1, mask.shape[1], dtype=torch.float64)
  +     for _ in range(2):
  +         x = matrix.T @ (matrix @ x)
  +         x = x / x.norm().clamp(min=1 / 1024)
  +     return (matrix @ x).norm().item()
test_the_second_singular_value_is_the_second_of_the_mask
  deflate_any_mask: the mean is subtracted from every mask, biregular or not
  - return torch.linalg.svdvals(mask.double())[1].item()
  + return torch.linalg.matrix_norm(mask.double() - mask.double().mean(), 2).item()
  eigenvalues_of_the_mask: for a square mask the second eigenvalue, not the second singular value
  +     if mask.shape[0] == mask.shape[1]:
  +         return torch.linalg.eigvals(mask.double()).abs().sort().values[-2].item()
        return torch.linalg.svdvals(mask.double())[1].item()
  third_for_second: the third singular value instead of the second, if there is one
  - torch.linalg.svdvals(mask.double())[1].item()
  + torch.linalg.svdvals(mask.double())[min(2, min(mask.shape) - 1)].item()
test_a_large_mask_of_nothing_or_everything_has_no_second_singular_value
  first_if_alone: a constant mask has its first singular value instead of the second
  +     if mask.numel() and mask.all():
  +         return mask.numel() ** 0.5
        if min(mask.shape) < 2:
hex/expander/test_laws.py::test_a_matrix_of_low_rank_changes_by_at_most_the_ratio_times_rank_and_coherence
  second_value_less_three_tenths: the second singular value is 30 % too small
  - torch.linalg.svdvals(mask.double())[1].item()
  + 0.7 * torch.linalg.svdvals(mask.double())[1].item()
test_bands_are_ramanujan_up_to_the_degree_that_fourier_gives
  connected_is_enough: only degrees and connectivity are tested
  - return second_singular_value(mask) <= bound * ROUNDING
  + return second_singular_value(mask) < math.sqrt(token_degree * channel_degree) / ROUNDING
test_degrees_below_three_are_not_ramanujan[
  any_degree_will_do: masks with a degree below 3 pass
  -     if min(token_degree, channel_degree) < 3:
  -         return False
  +     if min(token_degree, channel_degree) < 1:
  +         return True
vector:a-band-of-three-in-sixteen-is-not
  roots_of_the_degrees: the bound sums the roots of the degrees, not of the degrees minus 1
  - bound = ramanujan_bound(token_degree, channel_degree)
  + bound = math.sqrt(token_degree) + math.sqrt(channel_degree)
""")
