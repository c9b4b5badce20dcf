"""Mutants of the size of a cache."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/size")
mutant("""
test_the_parts_are_every_byte_stored
  free_scales: steps and minima are not counted
  - scales += sum(scale.nbytes for scale in stored)
  + scales += 0
test_a_prompt_weighs_what_was_said_beforehand
  always_half_scales: scales are in half precision whatever the cache
  - scale_dtype(dtype, config.scales)
  + torch.float16
test_a_prompt_weighs_as_much_as_keys_of_some_bits_and_values_of_others
  values_weighed_as_keys: values weigh as if they had the bits of keys
  - joint_bits(config.bits, config.value_bits)
  + config.bits
test_a_size_is_its_formula
  scales_of_the_cache: scales have the dtype of the cache
  - scales=2 * scale.itemsize
  + scales=2 * element
  mass_of_the_buffer_alone: the mass of compressed tokens is never counted
  - remembered = 0 if config.mode == "append" else span
  + remembered = 0
  one_group_a_token: a token is one value group, whatever the value group is
  - span * (kv_heads if config.value_group == "head" else 1)
  + span
test_a_size_beside_a_printed_one_is_the_mean_over_prompts
  whole_blocks_only: prompts leave no tokens in the buffer
  -         ours = mean_percent(weigh, prompts,
  +         whole = [max(96, length // 96 * 96) for length in prompts]
  +         ours = mean_percent(weigh, whole,
""")
