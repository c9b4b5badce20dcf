"""Strategies for needles, haystacks and answers."""

import torch
from hypothesis import strategies as st

from spec_tests.graphkv.graph.strategies import leads, up_to
from spec_tests.strategies import Refusal, generators


@st.composite
def hide_needle(draw):
    """A text, a fact of any length, and the length of the input with both."""
    hidden, tokens = draw(st.integers(0, 3)), draw(st.integers(0, 12))
    return dict(
        haystack=torch.arange(tokens),
        needle=torch.arange(100, 100 + hidden),
        length=hidden + draw(up_to(tokens)),
        depth=draw(st.integers(0, 100)) / 100,
    )


@st.composite
def needle_recall(draw):
    """Responses with words of the answer, some of them twice, and with other words."""
    words, said = draw(st.integers(1, 5)), draw(st.integers(0, 6))
    shape = (*draw(leads), said)
    generator = draw(generators)
    return dict(
        responses=torch.randint(-1, 7, shape, generator=generator),
        answer=torch.randint(0, 5, (words,), generator=generator),
    )


REFUSALS = dict(
    hide_needle=(
        dict(haystack=torch.arange(9), needle=torch.arange(2), length=8, depth=0.5),
        [Refusal("length", 1, ValueError, "[2, 11]"), Refusal("length", 12, ValueError, "[2, 11]")],
    ),
    needle_recall=(
        dict(responses=torch.arange(12).view(2, 2, 3), answer=torch.arange(4)),
        [Refusal("answer", lambda answer: answer[:0], ValueError, "empty")],
    ),
)
