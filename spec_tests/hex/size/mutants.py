"""Mutants of what a cache weighs."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/size")
mutant("""
test_the_parts_are_every_byte_stored
  free_scales: steps and minima weigh nothing
  - scales += sum(scale.nbytes for scale in stored)
  + scales += 0
test_a_prompt_weighs_what_was_said_beforehand
  always_half_scales: scales are in half precision whatever the cache
  - scale_dtype(dtype, config.scales)
  + torch.float16
test_a_size_is_its_formula
  scales_of_the_cache: scales are numbers of the cache's own type
  - scales=2 * scale.itemsize
  + scales=2 * element
  mass_of_the_buffer_alone: no mode remembers the mass of what is compressed
  - remembered = 0 if config.mode == "append" else span
  + remembered = 0
  one_group_a_token: a token is one value group however its heads are quantised
  - span * (kv_heads if config.value_group == "head" else 1)
  + span
test_a_size_beside_a_printed_one_is_the_mean_over_prompts
  whole_blocks_only: prompts leave nothing in the buffer
  -         ours = mean_percent(weigh, prompts,
  +         whole = [max(96, length // 96 * 96) for length in prompts]
  +         ours = mean_percent(weigh, whole,
""")
