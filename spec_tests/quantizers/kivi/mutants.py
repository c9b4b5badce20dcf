"""Mutants of KIVI."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/kivi")
mutant("""
vector:keys-by-channel-values-by-token
  kivi_without_groups: a block is one group, whatever the group size
  -     return pack_bits(block.codes.flatten(-2), bits), block.steps, block.minima
  +     whole = code(name, rows, bits, torch.zeros_like(rows, dtype=torch.bool), cache.scales)
  +     steps, minima = (y[..., None].expand_as(block.steps) for y in whole[1:])
  +     return pack_bits(whole.codes, bits), steps, minima
test_keys_have_the_codes_of_their_bits_and_values_those_of_theirs
  values_in_the_bits_of_keys: values have codes of as many bits as keys
  - bits=joint_bits(bits, value_bits)
  + bits=bits
test_the_last_tokens_are_exact
  values_by_the_block: the values of a full buffer are quantised together with its keys
  - old = max(0, held_values.shape[-2] - cache.residual)
  + old = full
test_every_head_is_what_the_definition_gives_one_number_at_a_time
  kivi_one_level_too_many: the step is the range over 2^b
  - block.steps, block.minima
  + block.steps * (1 - 2**-bits), block.minima
  kivi_rolled_scales: a group is restored with the scales of the next group
  - dequantise(codes, cache.key_steps, cache.key_minima)
  + dequantise(codes, cache.key_steps.roll(1, -1), cache.key_minima.roll(1, -1))
  kivi_untouched: nothing is quantised
  -     full = held_keys.shape[-2] // cache.residual * cache.residual
  -     old = max(0, held_values.shape[-2] - cache.residual)
  +     full = old = 0
  kivi_exchanged_axes: keys are quantised by token and values by channel
  - transposed(buffers)
  + buffers.reshape(transposed(buffers).shape)
test_any_chunks_of_tokens_give_the_same_cache
  kivi_lost_tokens: tokens left over after a full buffer are lost
  - residual_keys=held_keys[..., full:, :]
  + residual_keys=held_keys[..., full and held_keys.shape[-2] :, :]
  kivi_requantised: stored values get other steps when tokens are added
  - torch.cat([cache.value_steps, steps], -2)
  + torch.cat([cache.value_steps[..., :1, :].expand_as(cache.value_steps), steps], -2)
test_scales_are_stored_in_the_type_asked_for
  kivi_own_scales: scales have the default dtype, whatever `scales` is
  - scale_dtype(keys.dtype, scales)
  + scale_dtype(keys.dtype, None)
""")
