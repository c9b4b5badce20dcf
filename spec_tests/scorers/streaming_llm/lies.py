"""Lies about StreamingLLM."""

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import mutant


@mutant(
    "streaming_llm",
    "sinks are the first tokens, padding or not",
    killer="scorers/streaming_llm/test_laws.py::test_the_sinks_are_the_first_real_tokens",
)
def sinks_at_padding(keys, sinks=4, valid=None):
    """Count from the left of the tensor."""
    scores, protected = reference.streaming_llm(keys, sinks, valid)
    first = torch.arange(protected.shape[-1]) < sinks
    return Scored(scores, first.expand(protected.shape).clone())


@mutant(
    "streaming_llm",
    "the oldest tokens are kept",
    killer="scorers/streaming_llm/test_laws.py::test_the_first_and_the_last_real_tokens_are_kept",
)
def oldest_first(keys, sinks=4, valid=None):
    """Turn the order around."""
    scores, protected = reference.streaming_llm(keys, sinks, valid)
    return Scored(-scores, protected)


@mutant(
    "streaming_llm",
    "sinks score a sentinel",
    killer="scorers/streaming_llm/test_laws.py::test_a_score_is_the_number_of_real_tokens_up_to_it",
)
def sentinel_for_sinks(keys, sinks=4, valid=None):
    """Write the largest number there is."""
    scores, protected = reference.streaming_llm(keys, sinks, valid)
    return Scored(scores.masked_fill(protected, torch.finfo(scores.dtype).max), protected)
