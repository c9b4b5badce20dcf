"""Inputs of expected attention."""

import torch
from hypothesis import strategies as st

from reference import QueryStatistics
from spec_tests.draw import Refusal, grid, real, signed
from spec_tests.inputs.base_scorers_refusals import bad_padding
from spec_tests.inputs.padded import batches, groups, key_heads, lengths, masks

numbers = st.sampled_from([signed, real])


@st.composite
def counts(draw, batch, most):
    """A number for each row."""
    rows = torch.Size(batch).numel()
    drawn = draw(st.lists(st.integers(0, most), min_size=rows, max_size=rows))
    return torch.tensor(drawn, dtype=torch.int64).reshape(batch)


@st.composite
def statistics(draw, batch, heads, width, number):
    """Moments as queries might have them: the covariance is a square."""
    mean, root = draw(number(*batch, heads, width)), draw(number(*batch, heads, width, width))
    count, skipped = draw(counts(batch, 9)), draw(counts(batch, 4))
    return QueryStatistics(count, skipped, mean, root @ root.mT / 4)


@st.composite
def query_statistics(draw):
    """A chunk of queries, with or without a past."""
    batch, heads, width = draw(batches), draw(key_heads), draw(st.integers(1, 3))
    chunk, number = draw(lengths), draw(numbers)
    valid = past = None
    if draw(st.booleans()):
        past = draw(statistics(batch, heads, width, number))
    else:
        valid = draw(masks(batch, chunk))
    return dict(
        queries=draw(number(*batch, heads, chunk, width)),
        sinks=draw(st.integers(0, 5)),
        valid=valid,
        past=past,
    )


@st.composite
def mean_rotation(draw):
    """Any frequencies; one position for all rows, or one each."""
    batch = draw(batches)
    one, each = draw(st.integers(0, 9)), draw(counts(batch, 9))
    return dict(
        frequencies=draw(grid(draw(st.integers(0, 3)))),
        start=draw(st.sampled_from([one, each])),
        future=draw(st.sampled_from([1, 2, 5])),
    )


@st.composite
def expected_attention(draw):
    """Grouped heads; one rotation for all rows, or one each."""
    batch, kv_heads, group = draw(batches), draw(key_heads), draw(groups)
    tokens, width, number = draw(lengths), draw(st.integers(1, 3)), draw(numbers)
    one, each = draw(number(width, width)), draw(number(*batch, width, width))
    return dict(
        statistics=draw(statistics(batch, kv_heads * group, width, number)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        values=draw(number(*batch, kv_heads, tokens, width)),
        rotation=draw(st.sampled_from([one, each])),
        sinks=draw(st.integers(0, 5)),
        epsilon=draw(st.sampled_from([0.0, 0.5])),
        valid=draw(masks(batch, tokens)),
    )


INPUTS = dict(
    query_statistics=query_statistics(),
    mean_rotation=mean_rotation(),
    expected_attention=expected_attention(),
)

generator = torch.Generator().manual_seed(5)
queries, keys, values = (torch.randn(2, 6, 2, generator=generator) for _ in range(3))
valid = torch.arange(6) > 0
nothing = torch.tensor(0)
moments = QueryStatistics(nothing, nothing, queries[:, 0], torch.eye(2).repeat(2, 1, 1))
turn = torch.eye(2)


def unknown(statistics: QueryStatistics) -> QueryStatistics:
    """Return statistics whose means are no numbers."""
    return statistics._replace(mean=statistics.mean * torch.nan)


def alone(statistics: QueryStatistics) -> QueryStatistics:
    """Return the statistics of the first head."""
    return statistics._replace(mean=statistics.mean[:1], covariance=statistics.covariance[:1])


REFUSALS = dict(
    query_statistics=(dict(queries=queries, sinks=4, valid=valid, past=moments), [bad_padding]),
    mean_rotation=(
        dict(frequencies=turn[0], start=torch.tensor([3]), future=2),
        [
            Refusal("start", -1, ValueError, ">= 0"),
            Refusal("start", 2.0, TypeError, "integer"),
        ],
    ),
    expected_attention=(
        dict(statistics=moments, keys=keys, values=values, rotation=turn, sinks=4, epsilon=0.0,
             valid=valid),
        [
            Refusal("statistics", alone, ValueError, "multiple of the 2"),
            Refusal("statistics", unknown, ValueError, "finite"),
            Refusal("keys", lambda k: k * 2.0**100, ValueError, "where results are finite"),
            Refusal("values", lambda v: v[..., :1], ValueError, "shape"),
            Refusal("rotation", lambda r: r[:1], ValueError, "shape"),
            Refusal("rotation", lambda r: r[None], ValueError, "shape"),
            Refusal("rotation", lambda r: r * torch.nan, ValueError, "finite"),
            bad_padding,
        ],
    ),
)  # fmt: skip
