"""Mutants of GEAR's spans."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/gear")
mutant("""
vector:has-eight-levels-at-three-bits
  b_squared_levels: with outliers a grid has b^2 - 1 intervals, not 2^b - 1
  - code(name, filled, bits,
  + code(name, filled, torch.tensor(bits**2.0).log2().item(),
vector:fills-an-outliers-place-with-the-mean-of-the-row
  filled_with_zero: the places of outliers are filled with 0, not with the mean
  - torch.where(apart, mean, rows)
  + torch.where(apart, 0 * mean, rows)
test_a_grid_has_two_to_the_bits_levels_with_outliers_too
  outliers_in_the_grid: outliers count in minimum and maximum
  - grid(name, rows, bits, apart, scales)
  + code(name, rows, bits, torch.zeros_like(apart), scales)
test_a_correction_of_the_errors_whole_rank_mends_everything
  residual_without_outliers: the correction replaces the error of quantisation only, not of outliers
  - torch.where(apart, widen(rows), dequantise(*quantised))
  + dequantise(*quantised)
  uncorrected: the correction is left out
  - to_rows(widen(block.left) @
  + to_rows(0 * widen(block.left) @
  correction_over_all_heads: all heads share one correction
  - factors.left.to(x.dtype)
  + factors.left.mean(-3, keepdim=True).expand_as(factors.left).to(x.dtype)
vector:rows-of-values-span-the-heads
  values_head_by_head: each head of values has its own grid
        quantised = grid(name, rows, bits, apart, scales)
  +     head = slice(x.shape[-1] if by == "token" else None)
  +     first = grid(name, rows[..., head], bits, apart[..., head], scales)
  +     quantised = first._replace(codes=quantised.codes)
test_outliers_are_stored_exactly_and_moved_by_the_correction_alone
  outliers_always_exact: outliers are always exact
  - if exact_outliers:
  + if True:
test_the_last_place_of_a_long_row_can_be_counted
  places_of_two_bytes: a place always takes two bytes, in the longest row too
  - to(place_dtype(rows.shape[-1]))
  + to(torch.int16)
""")
