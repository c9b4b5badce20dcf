"""CAKE's scores and preferences."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.scorers.cake import oracle
from spec_tests.scorers.cake.strategies import cake, cake_preference
from spec_tests.scorers.padding_invariance import alone, assert_rows
from spec_tests.scorers.padding_masks import masks
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("GraphKV-CAKE")


@st.composite
def grouped(draw, group):
    """Two rows with an odd number of tokens, different padding, and the given groups."""
    tokens, width = draw(st.sampled_from([5, 7])), draw(st.integers(1, 2))
    kv_heads = 1 if group == 8 else 2
    return dict(
        queries=draw(gaussian_tensor(2, kv_heads * group, tokens, width)),
        keys=draw(gaussian_tensor(2, kv_heads, tokens, width)),
        window=draw(st.integers(2, 3)),
        valid=draw(masks((2,), tokens)),
    )


@pytest.mark.parametrize("group", [1, 4, 8])
@given(data=st.data())
def test_scores_agree_with_scalar_loops(impl, group, data):
    x = data.draw(cake(grouped(group)))
    choice = {name: x[name] for name in ("window", "gamma", "kernel")}
    scores = impl.cake(**x).scores
    assert_rows(scores, x, partial(oracle.scores, **choice), max(1.0, x["gamma"]))


@pytest.mark.parametrize("group", [1, 4, 8])
@given(data=st.data())
def test_preferences_agree_with_scalar_loops(impl, group, data):
    x = data.draw(cake_preference(grouped(group)))
    choice = {name: x[name] for name in ("window", "tau1", "tau2")}
    found = impl.cake_preference(**x)
    for row, parts in alone(x):
        rows = {name: tensor.tolist() for name, tensor in parts.items()}
        expected = oracle.preference(**rows, **choice) if parts["keys"].shape[-2] else 0.0
        assert_close(found[row], expected)


@given(cake(grouped(2)) | cake())
def test_the_window_is_protected_and_has_no_score(impl, x):
    scored = impl.cake(**x)
    for row, parts in alone(x):
        window = min(parts["keys"].shape[-2], x["window"])
        last = impl.recent_mask(scored.scores.shape[-1], window)
        assert_equal(scored.protected[row], last.expand_as(scored.protected[row]).clone())
    assert (scored.scores[scored.protected] == 0).all()
    assert (scored.scores >= 0).all()
