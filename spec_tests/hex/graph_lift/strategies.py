"""Strategies for masks with a permutation for each edge."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.hex.random_biregular.strategies import seeds
from spec_tests.hex.spectrum.strategies import any_mask, full, small_ramanujan_mask
from spec_tests.strategies import Refusal, always


@st.composite
def covering(draw):
    """A mask and a permutation for each of its edges."""
    mask = draw(any_mask())["mask"]
    generator = np.random.RandomState(draw(seeds))
    keys = generator.random_sample((int(mask.sum()), draw(st.integers(1, 4))))
    return dict(mask=mask, permutations=torch.from_numpy(keys.argsort(-1)))


@st.composite
def lifting(draw):
    """Inputs of `ramanujan_lift`."""
    return dict(mask=draw(small_ramanujan_mask()), sheets=draw(st.integers(1, 4)), seed=draw(seeds))


INPUTS = dict(lift=covering(), new_singular_value=covering(), ramanujan_lift=lifting())

DRAWN = dict.fromkeys(("ramanujan_lift",), always)

# a seed whose first covering is not Ramanujan
CORNERS = dict(ramanujan_lift=[dict(mask=~torch.eye(4, dtype=torch.bool), sheets=4, seed=6)])

sheets = torch.tensor([[0, 1]] * 12)
bad_permutations = [
    Refusal("permutations", lambda rows: rows + 1, ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[:, :0], ValueError, "permutations along the last"),
    Refusal("permutations", lambda rows: rows[1:], ValueError, "shape (12, 2)"),
]

REFUSALS = dict(
    lift=(dict(mask=full, permutations=sheets), bad_permutations),
    new_singular_value=(dict(mask=full, permutations=sheets), bad_permutations),
    ramanujan_lift=(
        dict(mask=full, sheets=2, seed=0),
        [Refusal("mask", lambda mask: mask & mask.flip(0), ValueError, "Ramanujan")],
    ),
)
