"""Mutants of the measurements of locality."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hubkv/importance_locality")
mutant("""
test_a_constant_sequence_has_no_correlation
  correlation_of_nothing: the correlation of a constant sequence is 1
  - torch.where(constant[..., None], 0,
  + torch.where(constant[..., None], 1,
test_weights_that_depend_on_the_distance_alone_are_the_profile
  profile_from_the_start: the queries are the first positions
  - (q, tokens - queries + q - d)
  + (q, (q - d) % tokens)
test_the_profile_spreads_the_whole_causal_mass
  profile_by_queries: sums are divided by the number of queries, not of pairs
  - torch.stack(pairs).mean(0)
  + torch.stack(pairs).sum(0) / queries
test_what_a_key_draws_is_the_mean_of_its_column_over_the_contents_queries
  density_of_all_queries: every query counts, including those of sinks and recent tokens
  - [i for i in range(queries) if content[tokens - queries + i]]
  + range(queries)
vector:what-keys-draw-from-the-contents-queries
  density_from_the_start: the mask of content is read from the first position
  - content[tokens - queries + i]
  + content[i]
  density_by_all_queries: sums are divided by the number of all queries
  - density / len(content_queries)
  + density / queries
test_of_2048_tokens_2004_are_content_and_1904_are_left_of_a_density
  series_trimmed_from_the_start: trimmed positions are counted from the start of the text
  - content[trimmed:]
  + content[max(0, trimmed - sinks) :]
test_the_series_of_the_content_starts_after_the_sinks_and_what_is_trimmed
  series_with_the_recent: the recent tokens are not removed
  - protected_mask(values.shape[-1], sinks, recent)
  + protected_mask(values.shape[-1], sinks, 0)
test_autocorrelation_is_the_mean_product_of_pairs_over_the_variance
  correlation_with_bessel: the variance divides by n - 1
  - (centred * centred).mean(-1)
  + ((centred * centred).sum(-1) / (tokens - 1))
  correlation_off_centre: the mean is not subtracted
  - values - values.mean(-1, keepdim=True)
  + values
  correlation_is_biased: sums are divided by n, not by the number of pairs
  - centred[..., d:]).mean(-1) / variance
  + centred[..., d:]).sum(-1) / tokens / variance
""")
