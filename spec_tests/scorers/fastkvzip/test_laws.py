"""FastKVzip's gate and its loss."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close
from spec_tests.scorers.fastkvzip import oracle
from spec_tests.scorers.fastkvzip.strategies import fastkvzip, fastkvzip_loss
from spec_tests.scorers.padding_masks import masks
from spec_tests.strategies import signed_sixteenths

pytestmark = pytest.mark.spec("HubKV-FastKVzip")

gated, judged = fastkvzip(), fastkvzip_loss()


@st.composite
def grouped(draw, group):
    """Two rows with an odd number of tokens, different padding, and the given groups."""
    number = lambda *shape: draw(signed_sixteenths(*shape))  # noqa: E731
    tokens, weights = draw(st.sampled_from([3, 5])), draw(gated)["weights"]
    shapes = ((1, group, 2, 2), (1, group, 2), (2,), (1, 2, 2), (2,), (1, 3, 2), (1, group))
    return dict(
        hidden=number(2, tokens, 2),
        weights=type(weights)(*(number(*shape) for shape in shapes)),
        epsilon=draw(st.sampled_from([2.0**-4, 1.0])),
        valid=draw(masks((2,), tokens)),
    )


@pytest.mark.parametrize("group", [1, 4, 8])
@given(data=st.data())
def test_scores_agree_with_scalar_loops(impl, group, data):
    x = data.draw(grouped(group))
    scores = impl.fastkvzip(**x).scores
    gate = {name: part.double().tolist() for name, part in x["weights"]._asdict().items()}
    for row, states in enumerate(x["hidden"].double().tolist()):
        for j, state in enumerate(states):
            real = x["valid"] is None or bool(x["valid"][row, j])
            expected = oracle.score(state, gate, 0, x["epsilon"]) if real else 0.0
            assert_close(scores[row, 0, j], expected)


@given(judged)
def test_the_loss_agrees_with_scalar_loops(impl, x):
    real = torch.ones_like(x["scores"][..., 0, :], dtype=torch.bool)
    if x["valid"] is not None:
        real = x["valid"]
    heads = (x[name].movedim(-2, 0)[:, real].double().tolist() for name in ("scores", "targets"))
    assert_close(impl.fastkvzip_loss(**x), sum(map(oracle.loss, *heads)))
