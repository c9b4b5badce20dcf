"""Strategies for queries and for their moments."""

import torch
from hypothesis import strategies as st

from reference import QueryStatistics
from spec_tests.scorers.padding_masks import bad_padding, batches, key_heads, lengths, masks
from spec_tests.strategies import Refusal, longer, signed_numbers


@st.composite
def counts(draw, batch, most):
    """A number for each row."""
    rows = torch.Size(batch).numel()
    drawn = draw(st.lists(st.integers(0, most), min_size=rows, max_size=rows))
    return torch.tensor(drawn, dtype=torch.int64).reshape(batch)


@st.composite
def statistics(draw, batch, heads, width, number):
    """Moments of possible queries: the covariance is a matrix times its transpose."""
    mean, root = draw(number(*batch, heads, width)), draw(number(*batch, heads, width, width))
    count, skipped = draw(counts(batch, 9)), draw(counts(batch, 4))
    return QueryStatistics(count, skipped, mean, root @ root.mT / 4)


@st.composite
def query_statistics(draw):
    """A chunk of queries, with or without earlier statistics."""
    batch, heads, width = draw(batches), draw(key_heads), draw(st.integers(1, 3))
    chunk, number = draw(lengths), draw(signed_numbers)
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


ones = torch.ones(1, 2, 3, 2)
counted = QueryStatistics(torch.tensor([2]), torch.tensor([1]), ones[:, :, 0], ones[:, :, :2])
# earlier statistics that skipped only some of the sinks
CORNERS = dict(query_statistics=[dict(queries=ones, sinks=2, valid=None, past=counted)])


generator = torch.Generator().manual_seed(5)
queries, keys, values = (torch.randn(2, 6, 2, generator=generator) for _ in range(3))
valid = torch.arange(6) > 0
nothing, one = torch.tensor(0), torch.tensor(1)
moments = QueryStatistics(nothing, nothing, queries[:, 0], torch.eye(2).repeat(2, 1, 1))


REFUSALS = dict(
    query_statistics=(
        dict(queries=queries, sinks=4, valid=valid | True, past=moments._replace(counted=one)),
        [
            bad_padding,
            Refusal("valid", valid, ValueError, "true after a row's first token"),
            Refusal("past", lambda p: p._replace(mean=longer(p.mean)), ValueError, "past.mean"),
        ],
    ),
)
