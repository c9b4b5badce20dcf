"""Mutants of what makes a graph Ramanujan."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/spectrum")
mutant("""
vector:bound-of-the-block-mask
  bound_at_the_mean_degree: the balanced bound at the mean degree
  - return math.sqrt(token_degree - 1) + math.sqrt(channel_degree - 1)
  + return 2 * math.sqrt((token_degree + channel_degree) / 2 - 1)
test_the_first_singular_value_occurs_once_for_each_component
  skip_repeated_values: the first singular value is taken out wherever it occurs
  -     return torch.linalg.svdvals(mask.double())[1].item()
  +     values = torch.linalg.svdvals(mask.double()).tolist()
  +     return next((value for value in values if value < values[0] - 1 / 8), 0.0)
test_two_halves_share_as_unevenly_as_the_second_value_allows
  third_for_second: the third singular value is reported, where there is one
  - torch.linalg.svdvals(mask.double())[1].item()
  + torch.linalg.svdvals(mask.double())[min(2, min(mask.shape) - 1)].item()
test_large_circulant_masks_have_the_singular_values_of_fourier
  stop_early: too few steps of power iteration
  -     return torch.linalg.svdvals(mask.double())[1].item()
  +     matrix = mask.double() - mask.double().mean()
  +     x = torch.linspace(-1, 1, mask.shape[1], dtype=torch.float64)
  +     for _ in range(2):
  +         x = matrix.T @ (matrix @ x)
  +         x = x / x.norm().clamp(min=1 / 1024)
  +     return (matrix @ x).norm().item()
test_the_second_singular_value_is_the_second_of_the_mask
  deflate_any_mask: the mean is taken out of every mask, biregular or not
  - return torch.linalg.svdvals(mask.double())[1].item()
  + return torch.linalg.matrix_norm(mask.double() - mask.double().mean(), 2).item()
  eigenvalues_of_the_mask: of a square mask eigenvalues count, as of a normal one
  +     if mask.shape[0] == mask.shape[1]:
  +         return torch.linalg.eigvals(mask.double()).abs().sort().values[-2].item()
        return torch.linalg.svdvals(mask.double())[1].item()
test_a_large_mask_of_nothing_or_everything_has_no_second_singular_value
  first_if_alone: of a constant mask the first singular value is reported
  +     if mask.numel() and mask.all():
  +         return mask.numel() ** 0.5
        if min(mask.shape) < 2:
test_a_tiled_prompt_is_no_ramanujan_graph
  connected_is_enough: only the degrees and connectedness are looked at
  - return second_singular_value(mask) <= bound * ROUNDING
  + return second_singular_value(mask) < math.sqrt(token_degree * channel_degree) / ROUNDING
test_degrees_below_three_are_not_ramanujan[
  any_degree_will_do: degrees below 3 are let through
  -     if min(token_degree, channel_degree) < 3:
  -         return False
  +     if min(token_degree, channel_degree) < 1:
  +         return True
vector:a-band-of-three-in-sixteen-is-not
  roots_of_the_degrees: the bound is the sum of the roots of the degrees, not of the degrees less 1
  - bound = ramanujan_bound(token_degree, channel_degree)
  + bound = math.sqrt(token_degree) + math.sqrt(channel_degree)
""")
