"""Mutants of what the quantised caches weigh."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/size")
mutant("""
test_the_parts_are_what_they_are_called
  bytes_without_places: outliers are counted without their places
  - block.outliers.nbytes + block.places.nbytes
  + block.outliers.nbytes
test_the_parts_are_every_byte_stored
  bytes_without_minima: steps are counted and minima are not
  - block.steps.nbytes + block.minima.nbytes
  + block.steps.nbytes
test_a_prompt_weighs_in_kivis_cache_what_was_said_beforehand
  kivi_size_of_values_twice: keys stay exact as long as values do
  - keys, values = tokens // residual * residual, max(0, tokens - residual)
  + keys = values = max(0, tokens - residual)
test_a_prompt_weighs_in_gears_cache_what_was_said_beforehand
  factors_of_square_errors: factors are as long as the prompt on both sides
  - columns * (tokens + width)
  + columns * (tokens + tokens)
vector:gear-places-of-a-row-of-32769-take-four-bytes
  short_places: a place takes two bytes in the longest row
  - element + place_dtype(members).itemsize
  + element + 2
""")
