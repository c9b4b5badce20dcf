"""Strategies for budgets and lengths."""

import torch
from hypothesis import strategies as st

from spec_tests.strategies import Refusal


@st.composite
def pyramidkv_budgets(draw):
    """Prompts of any length relative to the budget, one or several."""
    window = draw(st.sampled_from([32, 8, 1, 0, 5]))
    spare = draw(st.sampled_from([30, 96, 7, 61, 0, 1, 50]))
    # in halves of the budget without the window; negative: shorter than a window
    share = st.sampled_from([10, 3, 10, 3, -1, 2, 0, 1])
    length = share.map(lambda h: window + h * spare // 2 if h >= 0 else window // 2)
    several = st.lists(length, min_size=2, max_size=3) | st.just([])
    return dict(
        keep=window + spare,
        layers=draw(st.sampled_from([4, 3, 7, 1, 2, 9, 5])),
        tokens=draw(several.map(lambda n: torch.tensor(n, dtype=torch.int64)) | length),
        window=window,
        beta=draw(st.sampled_from([20, 3, 1, 500, 2])),
        exact=draw(st.booleans()),
    )


# a line whose rounded sum is too small; layers with equal budgets; one layer
CORNERS = dict(
    pyramidkv_budgets=[
        dict(keep=40, layers=layers, tokens=tokens, window=8, beta=20, exact=True)
        for layers, tokens in ((4, 100), (4, torch.tensor([100, 30, 4])), (1, 100))
    ]
)


REFUSALS = dict(
    pyramidkv_budgets=(
        dict(keep=64, layers=4, tokens=torch.tensor([100, 50]), window=32, beta=20, exact=False),
        [
            Refusal("keep", 31, ValueError, ">= 32"),
            Refusal("tokens", lambda n: n.int(), TypeError, "int64"),
            Refusal("tokens", 9.0, TypeError, "integer"),
        ],
    ),
)
