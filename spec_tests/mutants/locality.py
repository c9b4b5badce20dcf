"""Mutants of the diagnostics."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "segment_coverage",
    "segments of ⌊n / m⌋ tokens",
    killer="test_vectors.py::test_vector[locality-segments-of-unequal-width]",
)
def segments_of_equal_width(order, tokens, segments=64):
    """Divide by the rounded width, and put what is left over into the last segment."""
    segment = (order // max(tokens // segments, 1)).clamp(max=segments - 1)
    return reference.segment_coverage(segment, segments, segments)


@mutant(
    "segment_coverage",
    "a pick gains if it is not in the segment of the pick before",
    killer="hubkv/test_segments.py::test_gains_sum_to_the_covered_share_in_any_order",
)
def segments_forget(order, tokens, segments=64):
    """Remember one segment."""
    gains = torch.full(order.shape, 1 / segments)
    gains[..., 1:] *= (segments * order // tokens).diff() != 0
    return gains


@mutant(
    "autocorrelation",
    "averages over n, not over the pairs there are",
    killer="hubkv/test_locality.py::test_a_repeated_sequence_matches_itself_after_every_period",
)
def correlation_is_biased(values, distances):
    """Shrink with the distance."""
    tokens = values.shape[-1]
    share = 1 - torch.arange(distances + 1, dtype=values.dtype) / tokens
    return reference.autocorrelation(values, distances) * share


@mutant(
    "autocorrelation",
    "the mean is not subtracted",
    killer="hubkv/test_locality.py::test_autocorrelation_ignores_shift_scale_and_direction",
)
def correlation_off_centre(values, distances):
    """Forget to centre."""
    tokens = values.shape[-1]
    lags = range(distances + 1)
    means = [(values[..., : tokens - d] * values[..., d:]).mean(-1) for d in lags]
    return torch.stack(means, -1) / (values * values).mean(-1, keepdim=True)


@mutant(
    "autocorrelation",
    "the variance of a sample, n - 1",
    killer="hubkv/test_locality.py::test_a_sequence_is_its_own_perfect_match",
)
def correlation_with_bessel(values, distances):
    """Divide by the other variance."""
    return reference.autocorrelation(values, distances) * (1 - 1 / values.shape[-1])


@mutant(
    "autocorrelation",
    "a constant sequence matches itself",
    killer="hubkv/test_locality.py::test_a_constant_sequence_has_no_correlation",
)
def correlation_of_nothing(values, distances):
    """Take 0/0 for 1."""
    constant = (values == values[..., :1]).all(-1, keepdim=True)
    return reference.autocorrelation(values, distances).masked_fill(constant, 1)


@mutant(
    "nms",
    "every token of a plateau is a maximum",
    killer="hubkv/test_locality.py::test_only_local_maxima_keep_their_score",
)
def nms_keeps_plateaus(scores, radius=3, factor=0.3):
    """Keep a token unless a later one of another score suppresses it."""
    lowered = reference.nms(scores, radius, factor)
    return torch.maximum(lowered, reference.nms(scores.flip(-1), radius, factor).flip(-1))


@mutant(
    "nms",
    "nothing is suppressed",
    killer="hubkv/test_locality.py::test_suppression_covers_more_segments_than_top_k",
)
def nms_does_nothing(scores, radius=3, factor=0.3):
    """Return the scores."""
    return scores.clone()


@mutant(
    "distance_profile",
    "the queries are the first positions",
    killer="hubkv/test_locality.py::test_weights_that_depend_on_the_distance_alone_are_the_profile",
)
def profile_from_the_start(weights, distances=128):
    """Put query 0 at position 0."""
    means = [weights.diagonal(-d, -2, -1).mean(-1) for d in range(distances + 1)]
    return torch.stack(means, -1).nan_to_num(0)


@mutant(
    "distance_profile",
    "divides by the number of queries, not of pairs",
    killer="hubkv/test_locality.py::test_the_profile_spreads_the_whole_causal_mass",
)
def profile_by_queries(weights, distances=128):
    """Count queries that see nothing so far back."""
    queries, tokens = weights.shape[-2:]
    pairs = (tokens - torch.arange(distances + 1)).clamp(max=queries)
    return reference.distance_profile(weights, distances) * pairs / queries


@mutant(
    "attention_density",
    "every query counts, also the sinks' and the recent ones'",
    killer="hubkv/test_locality.py"
    "::test_what_a_key_draws_is_the_mean_of_its_column_over_the_contents_queries",
)
def density_of_all_queries(weights, content=None):
    """Forget the content."""
    return weights.mean(-2)


@mutant(
    "attention_density",
    "the mask is read from the first position on",
    killer="test_vectors.py::test_vector[locality-what-keys-draw-from-the-contents-queries]",
)
def density_from_the_start(weights, content=None):
    """Put query 0 at position 0."""
    queries, tokens = weights.shape[-2:]
    if content is None:
        content = ~reference.protected_mask(tokens)
    return reference.attention_density(weights, content.roll(tokens - queries))


@mutant(
    "attention_density",
    "divides by the number of all queries",
    killer="test_vectors.py::test_vector[locality-what-keys-draw-from-the-contents-queries]",
)
def density_by_all_queries(weights, content=None):
    """Count queries that say nothing."""
    queries, tokens = weights.shape[-2:]
    inside = ~reference.protected_mask(tokens) if content is None else content
    share = inside[tokens - queries :].double().mean().to(weights.dtype)
    return reference.attention_density(weights, content) * share


@mutant(
    "content_series",
    "what is trimmed is counted from the start of the text",
    killer="hubkv/test_locality.py"
    "::test_of_2048_tokens_2004_are_content_and_1904_are_left_of_a_density",
)
def series_trimmed_from_the_start(values, trimmed=0, sinks=4, recent=None):
    """Trim sinks too."""
    return reference.content_series(values, max(0, trimmed - sinks), sinks, recent)


@mutant(
    "content_series",
    "the recent tokens stay",
    killer="hubkv/test_locality.py"
    "::test_the_series_of_the_content_starts_after_the_sinks_and_what_is_trimmed",
)
def series_with_the_recent(values, trimmed=0, sinks=4, recent=None):
    """Forget the other end."""
    return reference.content_series(values, trimmed, sinks, 0)


@mutant(
    "uniform_spread",
    "rounds down",
    killer="hubkv/test_segments.py::test_at_the_length_of_the_paper_no_pick_of_the_spread_is_wasted",
)
def spread_rounds_down(tokens, picks):
    """Lose segments: 64 picks of 2004 tokens touch 60."""
    return torch.tensor([k * tokens // picks for k in range(picks)], dtype=torch.int64)


@mutant(
    "random_order",
    "draws with replacement",
    killer="hubkv/test_segments.py::test_a_random_order_visits_each_position_once",
)
def order_with_replacement(tokens, seed):
    """Draw positions, not a permutation."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, max(tokens, 1), (tokens,), generator=generator)


@mutant(
    "random_order",
    "another generator",
    killer="test_vectors.py::test_vector[locality-the-frozen-generator]",
)
def order_of_another_generator(tokens, seed):
    """Use a generator that may change with the version."""
    return torch.randperm(tokens, generator=torch.Generator().manual_seed(seed))


@mutant(
    "retained_chains",
    "layer and head positions are counted, not tokens",
    killer="hubkv/test_chains.py::test_the_changed_share_counts_tokens",
)
def chains_by_position(base, refined, span):
    """Average over all places."""
    moved = (base ^ refined)[..., span].float().mean()
    return reference.retained_chains(base, refined, span)._replace(changed=moved)


@mutant(
    "retained_chains",
    "a token that moves to another head has changed",
    killer="hubkv/test_chains.py::test_a_token_that_moves_to_another_head_is_unchanged",
)
def chains_by_mask(base, refined, span):
    """Compare masks, not fractions."""
    rows = (base ^ refined).reshape(-1, base.shape[-1])
    return reference.retained_chains(base, refined, span)._replace(
        changed=rows.any(0)[span].float().mean()
    )


@mutant(
    "retained_chains",
    "means over all tokens",
    killer="hubkv/test_chains.py::test_means_run_over_the_span_alone",
)
def chains_everywhere(base, refined, span):
    """Forget the span."""
    return reference.retained_chains(base, refined, torch.ones_like(span))
