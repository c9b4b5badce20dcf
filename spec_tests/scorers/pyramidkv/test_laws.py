"""PyramidKV: budgets that decrease linearly from the first layer to the last."""

import pytest
import torch
from hypothesis import example, given

from spec_tests.inputs import CORNERS, INPUTS
from spec_tests.scorers.pyramidkv import oracle

pytestmark = pytest.mark.spec("GraphKV-PyramidKV")


def lengths(x):
    """Return the number of tokens of each row."""
    return torch.as_tensor(x["tokens"])


@given(INPUTS["pyramidkv_budgets"])
@example(CORNERS["pyramidkv_budgets"][0])
def test_every_row_has_the_budgets_of_its_own_length(impl, x):
    budgets = impl.pyramidkv_budgets(**x)
    assert budgets.shape == (x["layers"], *lengths(x).shape)
    for found, tokens in zip(
        budgets.reshape(x["layers"], -1).T, lengths(x).flatten().tolist(), strict=True
    ):
        assert found.tolist() == oracle.pyramidkv_budgets(**x | dict(tokens=tokens))


@pytest.mark.parametrize(("cap", "percent"), [(512, 1.35), (128, 15.10)])
def test_32_layers_overspend_by_the_known_share(impl, cap, percent):
    spent = int((impl.pyramidkv_budgets(cap, 32, 8000) - 32).sum())
    assert round(100 * (spent / (32 * (cap - 32)) - 1), 2) == percent
