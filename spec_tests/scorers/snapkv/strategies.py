"""Strategies for windows."""

from hypothesis import strategies as st

import reference
from spec_tests.from_signature import draw_choices
from spec_tests.scorers.attention_inputs import (
    attended_with_optional_log_sum_exp,
    bad_attention,
    cache,
    queries,
    valid,
)
from spec_tests.scorers.padding_masks import bad_padding
from spec_tests.strategies import Refusal


@st.composite
def snapkv(draw):
    """Inputs with windows shorter and longer than rows."""
    window = draw(st.integers(1, 5))
    return draw(attended_with_optional_log_sum_exp(least=window)) | dict(
        window=window,
        kernel=draw(st.sampled_from([1, 3, 5])),
        **draw(draw_choices(reference.snapkv)),
    )


SCORED = dict(
    snapkv=lambda impl, queries, keys, valid, **_: impl.snapkv(queries, keys, window=2, valid=valid)
)

REFUSALS = dict(
    snapkv=(
        dict(
            queries=queries,
            keys=cache,
            window=1,
            kernel=3,
            pooling="max",
            valid=valid,
            log_sum_exp=None,
        ),
        [
            *bad_attention,
            Refusal("queries", lambda q: q[..., :0, :], ValueError, "at least the last 1"),
            Refusal("window", 2, ValueError, "at least the last 2"),
            Refusal("kernel", 4, ValueError, "odd"),
            bad_padding,
        ],
    ),
)
