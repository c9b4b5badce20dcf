"""Observation 2 and profiles of the attention: HubKV §2.3, Appendices I and K."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hubkv.importance_locality.strategies import lengths
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid


@st.composite
def exact_sequences(draw):
    """Sequences whose length is a power of two, so that their mean is exact; not all equal."""
    tokens = 2 ** draw(st.integers(1, 4))
    values = draw(grid(tokens, low=-8)).double()
    values[draw(st.integers(0, tokens - 1))] = 1 + 1 / 16
    return values


@st.composite
def by_distance(draw):
    """A weight for each distance, and the number of queries."""
    tokens = draw(st.integers(1, 16))
    return draw(grid(tokens)), draw(st.integers(1, tokens))


@pytest.mark.spec("HubKV-Obs2")
@given(exact_sequences())
def test_autocorrelation_is_the_mean_product_of_pairs_over_the_variance(impl, values):
    """The mean at distance d is over the existing pairs, so that a sequence matches itself."""
    tokens, centred = len(values), values - values.mean()
    pairs = [(centred[: tokens - d] * centred[d:]).mean() for d in range(tokens)]
    expected = torch.stack(pairs) / values.var(correction=0)
    found = impl.autocorrelation(values, tokens - 1)
    assert_close(found, expected, tokens / torch.arange(tokens, 0, -1.0))
    assert_close(found[0], 1.0)


@pytest.mark.spec("HubKV-Obs2")
@given(st.sampled_from([0.0, 0.5, -7.75]), lengths)
def test_a_constant_sequence_has_no_correlation(impl, value, tokens):
    """The mean of equal numbers like these is exact."""
    for dtype in (torch.float32, torch.float64):
        flat = torch.full((tokens,), value, dtype=dtype)
        assert_equal(impl.autocorrelation(flat, tokens - 1), torch.zeros_like(flat))


@pytest.mark.spec("HubKV-I")
@given(by_distance())
def test_weights_that_depend_on_the_distance_alone_are_the_profile(impl, x):
    profile, queries = x
    tokens = len(profile)
    apart = torch.arange(tokens - queries, tokens)[:, None] - torch.arange(tokens)
    # weights on later tokens must not count in any mean
    weights = torch.where(apart >= 0, profile[apart.clamp(min=0)], 99.0)
    assert_close(impl.distance_profile(weights, tokens - 1), profile)


@pytest.mark.spec("HubKV-I")
@given(INPUTS["distance_profile"])
def test_the_profile_spreads_the_whole_causal_mass(impl, x):
    weights = x["weights"].double()
    queries, tokens = weights.shape[-2:]
    profile = impl.distance_profile(weights, tokens - 1)
    pairs = torch.tensor([min(queries, tokens - d) for d in range(tokens)]).double()
    mass = weights.tril(tokens - queries).sum((-2, -1))
    assert_close((profile * pairs).sum(-1), mass, mass.abs() + tokens)


@pytest.mark.spec("HubKV-K")
@given(INPUTS["attention_density"])
def test_what_a_key_draws_is_the_mean_of_its_column_over_the_contents_queries(impl, x):
    weights, tokens = x["weights"].double(), x["weights"].shape[-1]
    inside = (torch.arange(tokens) >= 4) & (torch.arange(tokens) < tokens - tokens // 50)
    inside = inside if x["content"] is None else x["content"]
    content_queries = inside[tokens - weights.shape[-2] :]
    # weights of queries outside the content must not count in any mean
    spoilt = weights.masked_fill(~content_queries[:, None], 99.0)
    density = impl.attention_density(spoilt, x["content"])
    assert density.shape == (*weights.shape[:-2], tokens)
    for j in range(tokens):
        column = weights[..., j].masked_fill(~content_queries, 0).sum(-1)
        assert_close(density[..., j] * int(content_queries.sum()), column, column.abs())


@pytest.mark.spec("HubKV-K", "HubKV-12")
@given(INPUTS["content_series"])
def test_the_series_of_the_content_starts_after_the_sinks_and_what_is_trimmed(impl, x):
    tokens, sinks, recent = x["values"].shape[-1], x["sinks"], x["recent"]
    recent = tokens // 50 if recent is None else recent
    inside = [i for i in range(tokens) if sinks <= i < tokens - recent][x["trimmed"] :]
    assert_equal(impl.content_series(**x), x["values"][..., inside])


@pytest.mark.spec("HubKV-K", "HubKV-Obs1", "HubKV-Obs2", "HubKV-Obs3")
def test_of_2048_tokens_2004_are_content_and_1904_are_left_of_a_density(impl):
    """Four sinks, 40 recent tokens, and the first 100 of the content are removed."""
    position = torch.arange(2048.0)
    assert_equal(impl.content_series(position), torch.arange(4.0, 2008.0))
    assert_equal(impl.content_series(position, trimmed=100), torch.arange(104.0, 2008.0))
