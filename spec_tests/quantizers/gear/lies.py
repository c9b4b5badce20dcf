"""Lies about GEAR's spans."""

from spec_tests.mutants.make import lies

lie = lies("quantizers/gear")

lie(
    "b_squared_levels",
    "with outliers a grid has b^2 - 1 intervals",
    "code(name, filled, bits, ",
    "code(name, filled, torch.tensor(bits**2.0).log2().item(), ",
    "vector:has-eight-levels-at-three-bits",
)
lie(
    "filled_with_zero",
    "the places of outliers are filled with zero",
    "narrow(mean(widen(rows)), rows.dtype)",
    "torch.zeros_like(rows)",
    "vector:fills-an-outliers-place-with-the-mean-of-the-row",
)
lie(
    "outliers_in_the_grid",
    "outliers stay in the statistics",
    "grid(name, rows, bits, apart, scales)",
    "code(name, rows, bits, torch.zeros_like(apart), scales)",
    "test_a_grid_has_two_to_the_bits_levels_with_outliers_too",
)
lie(
    "residual_without_outliers",
    "the correction is of what quantisation alone leaves of the outliers, too",
    "torch.where(apart, widen(rows), dequantise(*quantised))",
    "dequantise(*quantised)",
    "test_a_correction_of_the_errors_whole_rank_mends_everything",
)
lie(
    "values_head_by_head",
    "values have a grid for each head",
    "quantised = grid(name, rows, bits, apart, scales)",
    "quantised = grid(name, rows, bits, apart, scales)\n"
    '    head = slice(x.shape[-1] if by == "token" else None)\n'
    "    first = grid(name, rows[..., head], bits, apart[..., head], scales)\n"
    "    quantised = first._replace(codes=quantised.codes)",
    "vector:rows-of-values-span-the-heads",
)
lie(
    "correction_over_all_heads",
    "all heads share one correction",
    "narrow(factors.left, x.dtype)",
    "narrow(factors.left.mean(-3, keepdim=True).expand_as(factors.left), x.dtype)",
    "test_each_head_has_a_correction_of_its_own",
)
lie(
    "uncorrected",
    "the correction is left out",
    "to_rows(widen(block.left) @",
    "to_rows(0 * widen(block.left) @",
    "test_codes_are_used_and_a_correction_helps",
)
lie(
    "outliers_always_exact",
    "outliers are always exact",
    "if exact_outliers:",
    "if True:",
    "test_outliers_are_stored_exactly_and_moved_by_the_correction_alone",
)
lie(
    "places_of_two_bytes",
    "a place takes two bytes in the longest row",
    "to(place_dtype(rows.shape[-1]))",
    "to(torch.int16)",
    "test_the_last_place_of_a_long_row_can_be_counted",
)
lie(
    "overflowing_mean",
    "the mean of large numbers is beyond them all",
    "mean(widen(rows))",
    "widen(rows).mean(-1, keepdim=True)",
    "test_equal_numbers_have_a_grid_of_one_point_however_large",
)
