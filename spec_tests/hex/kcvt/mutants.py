"""Mutants of KCVT."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/kcvt")
mutant("""
test_a_step_of_the_whole_range_would_leave_two_levels
  literal_step: the step is the whole range, as printed
  - (high - low) / top
  + high - low
test_the_minimum_is_exact_and_the_maximum_nearly
  one_level_too_many: the step is the range over 2^b
  - (high - low) / top
  + (high - low) / (top + 1)
test_kept_entries_do_not_enter_the_statistics
  polluted_statistics: kept entries count in minimum and maximum
  - rest.min(), rest.max()
  + wide[group].min(), wide[group].max()
vector:a-kept-key-below-the-rest-is-no-minimum
  kept_in_the_minimum: kept entries count in the minimum
  - rest.min(), rest.max()
  + wide[group].min(), rest.max()
vector:a-kept-key-above-the-rest-is-no-maximum
  kept_in_the_maximum: kept entries count in the maximum
  - rest.min(), rest.max()
  + rest.min(), wide[group].max()
vector:ties-round-to-even
  half_up: ties round up
  - ((wide - low) / step).round()
  + ((wide - low) / step + 0.5).floor()
test_codes_are_the_nearest_to_the_stored_grid
  codes_of_exact_scales: codes are computed with the exact scales, not with the stored ones
  - minima[..., None].to(wide.dtype), steps[..., None].to(wide.dtype)
  + low[..., None], step[..., None]
test_the_error_is_at_most_half_a_step
  symmetric: grids are symmetric about zero
  -     return Quantised(codes, steps, minima)
  +     high = torch.maximum(minima.abs(), (minima + steps * top).abs())
  +     return Quantised(codes, steps, -high)
test_keys_are_quantised_by_channel_and_values_by_token
  one_value_group: a token's group spans the heads, whatever the setting
  -     rows, kept_rows = group_values(values, value_group), group_values(kept, value_group)
  +     value_group = "token"
  +     rows, kept_rows = group_values(values, value_group), group_values(kept, value_group)
  kept_by_reshape: the mask of kept values has heads first, the values have tokens first
  -     rows, kept_rows = group_values(values, value_group), group_values(kept, value_group)
  +     rows = group_values(values, value_group)
  +     kept_rows = kept.reshape(rows.shape)
  untouched: nothing is quantised
  - torch.where(kept, keys, restored_keys), torch.where(kept, values, restored_values)
  + keys.clone(), values.clone()
  kept_are_quantised: kept entries are restored from codes
  - torch.where(kept, keys, restored_keys), torch.where(kept, values, restored_values)
  + restored_keys, restored_values
test_a_code_never_exceeds_the_grid
  codes_above_the_grid: a code can exceed the largest one
  - round().clamp(0, top)
  + round().clamp(0, 255)
test_scales_are_stored_in_the_type_asked_for
  scales_of_the_input: scales are stored in the dtype of the input
  - (dtype if dtype in wide else torch.float32)
  + dtype
vector:keys-by-channel-values-by-token
  keys_by_token: keys are quantised by token
  - transposed(by_channel)
  + dequantise(*code('keys', keys, bits, kept, scales))
  values_by_channel: values are quantised by channel
  - ungroup_values(by_token, value_group, values.shape[-1]).to(values.dtype)
  + transposed(dequantise(*code('values', transposed(values), bits, transposed(kept), scales)))
""")
