"""Lies about StreamingLLM."""

from spec_tests.mutants.make import lies

lie = lies("scorers/streaming_llm")

lie(
    "sinks_at_padding",
    "sinks are the first tokens, padding or not",
    "protected = valid[..., None, :] & (position <= sinks)",
    "protected = (valid | True).cumsum(-1)[..., None, :].expand(keys.shape[:-1]) <= sinks",
    "test_the_sinks_are_the_first_real_tokens",
)
lie(
    "oldest_first",
    "the oldest tokens are kept",
    "Scored(position.to(",
    "Scored(-position.to(",
    "test_the_first_and_the_last_real_tokens_are_kept",
)
lie(
    "sentinel_for_sinks",
    "sinks score a sentinel",
    "Scored(position.to(",
    "Scored(position.masked_fill(protected, 2**31).to(",
    "test_a_score_is_the_number_of_real_tokens_up_to_it",
)
