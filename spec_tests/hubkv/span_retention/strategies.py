"""Strategies for two selections and a span."""

import torch
from hypothesis import strategies as st

from spec_tests.hubkv.importance_locality.strategies import lengths
from spec_tests.strategies import Refusal, booleans

no_heads = st.sampled_from([(), (1,), (3,), (2, 2)])


@st.composite
def retained_chains(draw):
    """Any two selections, and a span of at least one token."""
    shape = (*draw(no_heads), draw(lengths))
    span = draw(booleans(shape[-1]))
    span[draw(st.integers(0, shape[-1] - 1))] = True
    return dict(base=draw(booleans(*shape)), refined=draw(booleans(*shape)), span=span)


mask = torch.tensor([[True, False, False, True], [False, True, False, True]])

REFUSALS = dict(
    retained_chains=(
        dict(base=mask, refined=~mask, span=mask[0]),
        [Refusal("span", torch.zeros(4, dtype=torch.bool), ValueError, "true somewhere")],
    ),
)
