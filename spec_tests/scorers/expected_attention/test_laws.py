"""Expected attention."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.scorers.expected_attention import oracle
from spec_tests.scorers.expected_attention.strategies import expected_attention
from spec_tests.scorers.padding_invariance import starts
from spec_tests.scorers.padding_masks import masks
from spec_tests.strategies import grid, signed_sixteenths

pytestmark = pytest.mark.spec("HubKV-ExpectedAttention")

drawn = expected_attention()


@st.composite
def grouped(draw, group):
    """Two rows with an odd number of tokens, different padding, and the given groups."""
    tokens, width = draw(st.sampled_from([3, 5])), draw(st.integers(1, 2))
    number = lambda *shape: draw(signed_sixteenths(*shape))  # noqa: E731
    kv_heads = 1 if group == 8 else 2
    root = number(2, kv_heads * group, width, width)
    return dict(
        moments=(number(2, kv_heads * group, width), root @ root.mT),
        keys=number(2, kv_heads, tokens, width),
        values=number(2, kv_heads, tokens, width),
        rotation=number(width, width),
        sinks=draw(st.integers(0, 4)),
        epsilon=draw(st.sampled_from([0.0, 0.5])),
        valid=draw(masks((2,), tokens)),
    )


def statistics(impl, mean, covariance):
    """Return statistics with the given moments."""
    empty = impl.query_statistics(mean[..., None, :][..., :0, :])
    return empty._replace(mean=mean, covariance=covariance)


@pytest.mark.parametrize("group", [1, 4, 8])
@given(data=st.data())
def test_scores_agree_with_scalar_loops(impl, group, data):
    x = data.draw(grouped(group))
    mean, covariance = x.pop("moments")
    scores = impl.expected_attention(statistics(impl, mean, covariance), **x).scores
    for row, first in starts(x):
        start = min(first + x["sinks"], scores.shape[-1])
        exact = [t[row].double() for t in (mean, covariance, x["keys"], x["values"])]
        means, covariances, keys, values = exact
        turn, epsilon = x["rotation"].double().tolist(), x["epsilon"]
        own = (keys[:, start:].tolist(), values[:, start:].tolist())
        expected = oracle.scores(means.tolist(), covariances.tolist(), *own, turn, epsilon)
        assert (scores[row][:, :start] == 0).all()
        if start < scores.shape[-1]:
            assert_close(scores[row][:, start:], torch.tensor(expected), 2.0)


@given(grid(1, low=-16), grid(1, high=16), grid(1, 3, 1, low=-16))
def test_scores_are_in_the_ratio_of_mean_exponentials(impl, mean, variance, keys):
    """The exponential of a logit, averaged over Gaussian queries by numerical integration."""
    given_moments = statistics(impl, mean[None], variance[None, None])
    scored = impl.expected_attention(given_moments, keys, torch.ones_like(keys), torch.eye(1), 0)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    spread = variance.double().sqrt().numpy()
    exact = [
        float(weights @ np.exp((mean.double().numpy() + spread * nodes) * key))
        for key in keys.double().flatten().tolist()
    ]
    assert_close(scored.scores[0], torch.tensor(exact).double() / sum(exact))


@given(drawn)
def test_sinks_are_protected_and_the_rest_scores_as_without_them_and_padding(impl, x):
    scored = impl.expected_attention(**x)
    for row, start in starts(x):
        first = torch.arange(scored.scores.shape[-1]) - start
        sinks = (first >= 0) & (first < x["sinks"])
        assert_equal(scored.protected[row], sinks.expand_as(scored.protected[row]).clone())
        assert (scored.scores[row][:, first < x["sinks"]] == 0).all()
        parts = {name: x[name][row][:, first >= x["sinks"]] for name in ("keys", "values")}
        turn = x["rotation"][row] if x["rotation"].ndim > 2 else x["rotation"]
        moments = type(x["statistics"])(*(part[row] for part in x["statistics"]))
        rest = parts | dict(valid=None, rotation=turn, statistics=moments, sinks=0)
        expected = impl.expected_attention(**x | rest).scores.double()
        assert_close(scored.scores[row][:, first >= x["sinks"]], expected, 16.0)
    assert (scored.scores >= 0).all()
