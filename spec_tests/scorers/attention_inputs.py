"""Inputs of scorers that take only queries, keys and padding."""

import torch
from hypothesis import strategies as st

from spec_tests.attention.strategies import bad_queries, bad_sums, log_sum_exp
from spec_tests.strategies import signed_numbers, signed_sixteenths

# The most useful values come first, where Hypothesis draws most often; empty axes are rare.
batches = st.sampled_from([(2,), (), (2,), (), (1,), (2, 1), (0,)])
mostly = st.sampled_from([True, True, True, False])
key_heads = st.sampled_from([1, 2, 1, 2, 1, 2, 0])
lengths = st.sampled_from([8, 7, 6, 5, 8, 7, 6, 4, 3, 2, 1, 0])


@st.composite
def left_padding(draw, batch, tokens):
    """A mask of rows that start at any token, or after the last one."""
    rows = torch.Size(batch).numel()
    start = st.sampled_from([min(1, tokens), 0, min(2, tokens), *range(tokens + 1)])
    first = draw(st.lists(start, min_size=rows, max_size=rows))
    starts = torch.tensor(first, dtype=torch.int64).reshape(*batch, 1)
    return torch.arange(tokens) >= starts


@st.composite
def attended(draw, least=0, number=None, groups=(2, 1, 4)):
    """Queries of the last tokens, keys, and a padding mask or None."""
    batch, width = draw(batches), draw(st.integers(1, 4))
    kv_heads, group = draw(key_heads), draw(st.sampled_from(groups))
    tokens = draw(lengths)
    count = tokens - draw(st.integers(0, max(0, tokens - least)))
    number = number or draw(signed_numbers)
    return dict(
        queries=draw(number(*batch, kv_heads * group, count, width)),
        keys=draw(number(*batch, kv_heads, tokens, width)),
        valid=draw(left_padding(batch, tokens)) if draw(mostly) else None,
    )


@st.composite
def attended_with_optional_log_sum_exp(draw, least=0):
    """The same with the log-sum-exp of the queries, or None.

    At padding it has a value that a flash forward may return. Every dtype holds the numbers, since
    rounding would change the logits.
    """
    if not draw(mostly):
        return draw(attended(least)) | dict(log_sum_exp=None)
    x = draw(attended(least, signed_sixteenths))
    return x | dict(
        log_sum_exp=log_sum_exp_with_padding_fill(
            x, draw(st.sampled_from([-torch.inf, torch.inf, 0.0]))
        )
    )


def log_sum_exp_with_padding_fill(x, beside=-torch.inf):
    """Return the log-sum-exp of a sequence, with `beside` at padding."""
    sums = log_sum_exp(**x)
    return sums.where(sums > -torch.inf, beside)


@st.composite
def two_row_batch(draw):
    """Two rows, padded or not, of an odd number of tokens; 1, 4 or 8 query heads a key head."""
    group, tokens = draw(st.sampled_from([4, 1, 8])), draw(st.sampled_from([7, 5, 7, 1, 3, 5]))
    kv_heads = 1 if group == 8 else 2
    return dict(
        queries=draw(signed_sixteenths(2, kv_heads * group, tokens, 2)),
        keys=draw(signed_sixteenths(2, kv_heads, tokens, 2)),
        valid=draw(left_padding((2,), tokens)),
    )


cache = torch.tensor([[[0.25, 0.5], [1.0, -0.5]], [[0.0, 0.5], [0.75, -1.0]]])
queries = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
valid = torch.tensor([True, True])
bad_attention = [*bad_sums, *bad_queries]
