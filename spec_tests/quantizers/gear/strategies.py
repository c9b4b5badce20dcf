"""Strategies for spans whose errors have a known rank."""

from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

import reference
from spec_tests.hex.kcvt.strategies import scale_beyond_float16
from spec_tests.quantizers.kivi.strategies import before_tokens, keys, scales, seeds
from spec_tests.quantizers.low_rank.strategies import is_partial, one_channel_per_token, up_to
from spec_tests.strategies import Refusal, gaussian_tensor

lengths = st.sampled_from([5, 8, 4, 6, 3, 7, 2, 1, 0])
"""Lengths of spans, mostly long enough for errors."""


def coded(row, bits, count, random):
    """Return a row of codes with outliers; the mask `row` marks errors of a quarter of a step."""
    top = 2**bits - 1
    codes = random.integers(0, top, len(row), endpoint=True).astype(float)
    aside = np.where(codes == 0, 1, np.where(codes == top, -1, random.choice([-1, 1], len(row))))
    codes += row * aside / 4
    free = random.permutation(np.flatnonzero(~row))
    beyond = random.integers(1, 8, count, endpoint=True)
    codes[free[:1]], codes[free[1:2]] = 0, top
    # as many below as above, so that the mean is in the range of the others
    codes[free[2 : 2 + count]], codes[free[2 + count : 2 + 2 * count]] = -beyond, top + beyond
    return codes + random.integers(-8, 8, endpoint=True)


@st.composite
def gear_spans(draw, shape, by, bits, outliers):
    """A span with exact codes except for some errors of a quarter of a step, and the errors' rank.

    In each head a token has an error in at most one channel. So the columns of the error are
    orthogonal, and its factors are unique.
    """
    random = np.random.default_rng(draw(seeds))
    kv_heads, tokens, width = shape[-3:]
    members = tokens if by == "channel" else kv_heads * width
    count = int(outliers * members / 2)
    room = members - 2 - 2 * count
    most = max(0, room) if by == "channel" else tokens * (room >= kv_heads)
    errs = one_channel_per_token(shape, most, random)
    x = np.zeros(shape)
    rows, marks = (
        y.swapaxes(-1, -2) if by == "channel" else np.moveaxis(y, -3, -2) for y in (x, errs)
    )
    for row in np.ndindex(*rows.shape[: -1 if by == "channel" else -2]):
        codes = coded(marks[row].ravel(), bits, count, random)
        rows[row] = codes.reshape(rows[row].shape)
    power = int(random.integers(-4, 2, endpoint=True))
    ranks = errs.any(-2).sum(-1)
    return torch.from_numpy(x * 2.0**power).float(), int(ranks.min()) if ranks.size else 4


@st.composite
def gear_settings(draw):
    """Settings with few bits, so that 16-bit types hold quarters of a step, and few outliers."""
    return dict(
        bits=draw(st.integers(1, 4)),
        outliers=draw(st.sampled_from([0.5, 0.0, 0.4])),
        fill=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
        scales=draw(scales),
    )


@st.composite
def gear_compress(draw, sides=("channel", "token"), whole=False, exact=False):
    """A span of keys or of values, corrected at any rank up to its error's, or at the `whole` rank.

    Some spans are Gaussian, unless codes must be `exact`.
    """
    settings, by = draw(gear_settings()), draw(st.sampled_from(sides))
    before, width = draw(before_tokens), draw(st.integers(1, 4))
    shape = (*before, draw(lengths), width)
    x, rank = draw(gear_spans(shape, by, settings["bits"], settings["outliers"]))
    if not (whole or exact or draw(st.booleans())):
        x, rank = draw(gaussian_tensor(*shape)), min(shape[-2:])
    return dict(x=x, by=by, rank=rank if whole else draw(up_to(rank)), **settings)


@st.composite
def gear_blocks(draw):
    """Stored spans."""
    return reference.gear_compress(**draw(gear_compress()))


def is_partly_corrected(x, by, rank, **settings):
    """Whether the error of a span has a higher rank than its correction."""
    if not x.numel() or not rank:
        return False
    uncorrected = reference.gear_compress(x, by=by, rank=0, **settings)
    return is_partial(x - reference.gear_reconstruct(uncorrected), rank)


DRAWN = dict(gear_compress=lambda x: is_partly_corrected(**x))

INPUTS = dict(gear_reconstruct=dict(block=gear_blocks(), exact_outliers=st.booleans()))

CORNERS = dict(
    gear_compress=[  # there is no member to average
        dict(x=torch.ones(1, 2, 0, 2), by="channel", bits=2, outliers=0.5, rank=0, fill=True,
             seed=0, scales=None)
    ]
)  # fmt: skip

good: dict[str, Any] = dict(x=keys, by="channel", bits=4, outliers=0.3, rank=2, fill=True, seed=0)

GOOD = dict(gear_reconstruct=dict(block=reference.gear_compress(**good), exact_outliers=False))

REFUSALS = dict(
    gear_compress=(
        dict(**good, scales=torch.float16),
        [
            Refusal("x", scale_beyond_float16, ValueError, "torch.float16"),
            Refusal("x", lambda x: x[:0], ValueError, "a head and a channel"),
        ],
    )
)
