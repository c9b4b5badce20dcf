"""Strategies for moments, keys and values."""

import torch
from hypothesis import strategies as st

from reference import QueryStatistics
from spec_tests.scorers.padding_masks import bad_padding, batches, groups, key_heads, lengths, masks
from spec_tests.scorers.query_statistics import strategies as query_statistics
from spec_tests.scorers.query_statistics.strategies import keys, valid, values
from spec_tests.strategies import Refusal, signed_numbers


@st.composite
def expected_attention(draw):
    """Inputs with grouped heads; one rotation for all rows, or one each."""
    batch, kv_heads, group = draw(batches), draw(key_heads), draw(groups)
    tokens, width, number = draw(lengths), draw(st.integers(1, 3)), draw(signed_numbers)
    shared, by_row = draw(number(width, width)), draw(number(*batch, width, width))
    return dict(
        statistics=draw(query_statistics.statistics(batch, kv_heads * group, width, number)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        values=draw(number(*batch, kv_heads, tokens, width)),
        rotation=draw(st.sampled_from([shared, by_row])),
        sinks=draw(st.integers(0, 5)),
        epsilon=draw(st.sampled_from([0.0, 0.5])),
        valid=draw(masks(batch, tokens)),
    )


turn = torch.eye(2)


def unknown(statistics: QueryStatistics) -> QueryStatistics:
    """Return statistics whose means are NaN."""
    return statistics._replace(mean=statistics.mean * torch.nan)


def alone(statistics: QueryStatistics) -> QueryStatistics:
    """Return the statistics of the first head."""
    return statistics._replace(mean=statistics.mean[:1], covariance=statistics.covariance[:1])


SCORED = dict(
    expected_attention=lambda impl, queries, keys, values, valid, **_: impl.expected_attention(
        impl.query_statistics(queries, sinks=1, valid=valid),
        keys,
        values,
        impl.mean_rotation(torch.ones(2), start=10, future=2),
        sinks=1,
        valid=valid,
    ),
)

REFUSALS = dict(
    expected_attention=(
        dict(statistics=query_statistics.moments, keys=keys, values=values, rotation=turn, sinks=4,
             epsilon=0.0, valid=valid),
        [
            Refusal("statistics", alone, ValueError, "multiple of the 2"),
            Refusal("statistics", unknown, ValueError, "finite"),
            Refusal("values", lambda v: v[..., :1], ValueError, "shape"),
            Refusal("rotation", lambda r: r[:1], ValueError, "shape"),
            Refusal("rotation", lambda r: r[None], ValueError, "shape"),
            bad_padding,
        ],
    ),
)  # fmt: skip
