"""Strategies for rows and sinks."""

from hypothesis import strategies as st

from spec_tests.scorers.attention_inputs import attended, cache, valid
from spec_tests.scorers.padding_masks import bad_padding
from spec_tests.strategies import signed_sixteenths


@st.composite
def streaming_llm(draw):
    """Inputs with rows shorter and longer than the sinks."""
    x = draw(attended(number=signed_sixteenths))
    return dict(keys=x["keys"], sinks=draw(st.sampled_from([2, 1, 4, 0, 3, 9])), valid=x["valid"])


SCORED = dict(
    streaming_llm=lambda impl, keys, valid, **_: impl.streaming_llm(keys, sinks=2, valid=valid),
)

REFUSALS = dict(streaming_llm=(dict(keys=cache, sinks=1, valid=valid), [bad_padding]))
