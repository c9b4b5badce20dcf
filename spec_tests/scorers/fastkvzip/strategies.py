"""Strategies for FastKVzip's gates."""

import torch
from hypothesis import strategies as st

from reference import GateWeights
from spec_tests.scorers.padding_masks import bad_padding, batches, key_heads, lengths, masks
from spec_tests.strategies import Refusal, importance, signed_numbers


@st.composite
def gates(draw, hidden, number):
    """The weights of a small gate."""
    kv_heads, group = draw(key_heads), draw(st.integers(1, 2))
    dim, learned = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    return GateWeights(
        query=draw(number(kv_heads, group, dim, hidden)),
        query_bias=draw(number(kv_heads, group, dim)),
        query_scale=draw(number(dim)),
        key=draw(number(kv_heads, dim, hidden)),
        key_scale=draw(number(dim)),
        learned=draw(number(kv_heads, learned, dim)),
        bias=draw(number(kv_heads, group)),
    )


@st.composite
def fastkvzip(draw):
    """Hidden states of any width, and recent windows that may cover all tokens."""
    batch, tokens, width = draw(batches), draw(lengths), draw(st.integers(1, 3))
    number = draw(signed_numbers)
    return dict(
        hidden=draw(number(*batch, tokens, width)),
        weights=draw(gates(width, number)),
        sinks=draw(st.integers(0, 4)),
        recent=draw(st.sampled_from([None, 0, 3])),
        epsilon=draw(st.sampled_from([2.0**-10, 1.0])),
        valid=draw(masks(batch, tokens)),
    )


@st.composite
def fastkvzip_loss(draw):
    """Scores and targets in [0, 1], and at least one real token."""
    shape = (*draw(st.sampled_from([(), (2,)])), draw(st.integers(1, 2)), draw(st.integers(1, 6)))
    valid = torch.arange(shape[-1]) >= draw(st.integers(0, shape[-1] - 1))
    valid = valid.expand(*shape[:-2], -1).contiguous()
    scores, targets = draw(importance(*shape)), draw(importance(*shape))
    return dict(scores=scores, targets=targets, valid=draw(st.sampled_from([None, valid])))


SCORED = dict(
    fastkvzip=lambda impl, hidden, queries, keys, valid, **_: impl.fastkvzip(
        hidden,
        impl.train_fastkvzip(
            hidden,
            impl.kvzip(
                queries.split(4, -2), keys, keys.split(4, -2), chunk=4, sinks=1, valid=valid
            ).scores,
            group=2,
            steps=1,
            valid=valid,
        ),
        sinks=1,
        valid=valid,
    ),
)

generator = torch.Generator().manual_seed(13)
hidden = torch.randn(5, 3, generator=generator)
sizes = ((2, 2, 4, 3), (2, 2, 4), (4,), (2, 4, 3), (4,), (2, 3, 4), (2, 2))
weights = GateWeights(*(torch.randn(size, generator=generator) for size in sizes))
valid = torch.arange(5) > 0
scores = torch.tensor([[0.5, 0.25, 1.0, 0.0, 0.75], [0.25, 0.5, 0.5, 1.0, 0.0]])
nowhere = Refusal("valid", lambda v: v & False, ValueError, "true somewhere")


def ungrouped(weights: GateWeights) -> GateWeights:
    """Return the weights of a gate without query heads."""
    parts = dict(query=weights.query[:, :0], query_bias=weights.query_bias[:, :0])
    return weights._replace(**parts, bias=weights.bias[:, :0])


REFUSALS = dict(
    fastkvzip=(
        dict(hidden=hidden, weights=weights, sinks=4, recent=1, epsilon=1e-6, valid=valid),
        [
            Refusal("weights", lambda w: w._replace(key=w.key * torch.nan), ValueError, "finite"),
            Refusal("weights", lambda w: w._replace(key=w.key[:1]), ValueError, "shape"),
            Refusal("weights", lambda w: w._replace(bias=w.bias.long()), TypeError, "floating"),
            Refusal("weights", ungrouped, ValueError, "of at least 1"),
            Refusal("hidden", lambda x: x[:, :2], ValueError, "shape"),
            bad_padding,
        ],
    ),
    fastkvzip_loss=(
        dict(scores=scores, targets=scores, valid=valid),
        [
            bad_padding,
            nowhere,
        ],
    ),
)  # fmt: skip
