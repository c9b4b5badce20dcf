"""Mutants of the sizes printed for KIVI and GEAR."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/published_sizes")
mutant("""
test_the_sizes_printed_for_kivi_are_a_formula_of_three_prompts
  one_scale_a_group: a group has one scale, not two
  - 2 / group
  + 1 / group
test_ours_is_the_mean_over_prompts_of_what_the_layouts_weigh
  size_of_the_mean_prompt: the size is that of the mean prompt, not the mean of the prompts' sizes
  - partial(weigh, method), prompts,
  + partial(weigh, method), [sum(prompts) // len(prompts)],
  eight_heads: every model has eight heads
  +     kv_heads = 8
        def weigh(
""")
