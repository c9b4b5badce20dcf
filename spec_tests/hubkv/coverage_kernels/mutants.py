"""Mutants of the kernels of the coverage objective."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/coverage_kernels")
mutant("""
hubkv/coverage/test_laws.py::test_a_kernel_like_the_hub_window_overlaps_by_four_and_three_fifths
  window_of_half_the_width: the radius is the full width of the window
  - distance <= radius
  + distance <= radius // 2
test_a_gaussian_starts_at_one_and_falls
  gaussian_is_exponential: the kernel decays with the distance, not with its square
  - -((distances / deviation) ** 2) / 2
  + -distances / deviation
hubkv/greedy/test_laws.py::test_a_radius_of_half_the_plateau_leaves_the_core_order_one_budgetth
  window_of_the_hubs: the radius is at most 2, the default of hubs
  - distance <= radius
  + distance <= min(radius, 2)
""")
