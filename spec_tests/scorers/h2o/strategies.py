"""Strategies for queries, and for mass from earlier calls."""

import torch
from hypothesis import strategies as st

from spec_tests.scorers import attention_inputs
from spec_tests.scorers.attention_inputs import mostly, queries, valid
from spec_tests.scorers.padding_masks import bad_padding
from spec_tests.strategies import Refusal, importance


@st.composite
def h2o_mass(draw):
    """A sequence, and the mass of its first tokens from earlier calls, or None."""
    x = draw(attention_inputs.attended_with_optional_log_sum_exp())
    *heads, tokens, _ = x["keys"].shape
    before = importance(*heads, tokens - draw(st.integers(0, tokens)))
    return x | dict(mass=draw(before) if draw(mostly) else None)


@st.composite
def h2o(draw):
    """Masses with ties; a window that may cover all tokens."""
    batch, tokens, keep = (
        draw(attention_inputs.batches),
        draw(attention_inputs.lengths),
        draw(st.integers(0, 10)),
    )
    return dict(
        mass=draw(importance(*batch, draw(attention_inputs.key_heads), tokens)),
        keep=keep,
        valid=draw(attention_inputs.left_padding(batch, tokens)) if draw(mostly) else None,
        recent=draw(st.none() | st.integers(0, keep)),
    )


SCORED = dict(
    h2o=lambda impl, queries, keys, valid, **_: impl.h2o(
        impl.h2o_mass(queries, keys, valid=valid), keep=4, valid=valid
    ),
)

REFUSALS = dict(
    h2o_mass=(
        dict(
            queries=queries,
            keys=attention_inputs.cache,
            mass=torch.tensor([[0.5], [0.25]]),
            valid=valid,
            log_sum_exp=None,
        ),
        [
            *attention_inputs.bad_attention,
            Refusal("mass", lambda mass: mass.repeat(1, 3), ValueError, "at most the 2 tokens"),
            Refusal("mass", lambda mass: mass[:1], ValueError, "shape (2, 1)"),
            bad_padding,
        ],
    ),
    h2o=(
        dict(mass=torch.tensor([[0.5, 0.25]]), keep=1, valid=valid, recent=0),
        [bad_padding, Refusal("recent", 2, ValueError, "[0, 1]")],
    ),
)
