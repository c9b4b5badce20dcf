"""Draws of keys."""

from hypothesis import strategies as st

from spec_tests.scorers.attention_inputs import attended, cache, valid
from spec_tests.scorers.padding_masks import bad_padding
from spec_tests.strategies import signed_sixteenths


@st.composite
def knorm(draw):
    """Keys whose squared lengths are exact in any order."""
    x = draw(attended(number=signed_sixteenths))
    return dict(keys=x["keys"], valid=x["valid"], shift=draw(st.booleans()))


SCORED = dict(knorm=lambda impl, keys, valid, **_: impl.knorm(keys, valid, shift=True))

REFUSALS = dict(
    knorm=(
        dict(keys=cache, valid=valid, shift=False),
        [bad_padding],
    ),
)
