"""Mutants of the size of the quantised caches."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("quantizers/size")
mutant("""
test_the_parts_are_what_they_are_called
  bytes_without_places: the places of outliers are not counted
  - block.outliers.nbytes + block.places.nbytes
  + block.outliers.nbytes
test_the_parts_are_every_byte_stored
  bytes_without_minima: minima are not counted, only steps
  - block.steps.nbytes + block.minima.nbytes
  + block.steps.nbytes
test_a_prompt_weighs_in_kivis_cache_what_was_said_beforehand
  kivi_size_of_values_twice: keys stay exact for as many tokens as values
  - keys, values = tokens // residual * residual, max(0, tokens - residual)
  + keys = values = max(0, tokens - residual)
vector:kivi-values-of-two-bits-beside-keys-of-eight
  kivi_size_of_the_bits_of_keys: values weigh as if they had the bits of keys
  - word_count(width, value_bits or bits)
  + word_count(width, bits)
test_a_prompt_weighs_in_gears_cache_what_was_said_beforehand
  factors_of_square_errors: both factors have as many rows as the prompt has tokens
  - columns * (tokens + width)
  + columns * (tokens + tokens)
vector:gear-places-of-a-row-of-32769-take-four-bytes
  short_places: a place is counted as two bytes, in the longest row too
  - element + place_dtype(members).itemsize
  + element + 2
""")
