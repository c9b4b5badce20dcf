"""Inputs of GEAR: errors of a rank that is known."""

import numpy as np
import torch
from hypothesis import strategies as st

import reference
from spec_tests.draw import grid, heads, real
from spec_tests.inputs.gear_refusals import REFUSALS
from spec_tests.inputs.kivi import before_tokens, scales, seeds

__all__ = ["INPUTS", "REFUSALS"]

shares = st.sampled_from([0.0, 0.02, 0.25, 0.5, 1.0])

lengths = st.sampled_from([5, 8, 4, 6, 3, 7, 2, 1, 0])
"""Of spans, mostly such that something can err in them."""

matrices = st.sampled_from([(4, 3), (6, 2), (3, 4), (5, 4), (3, 3), (1, 2), (0, 3), (4, 0)])


def up_to(most):
    """Numbers up to a greatest one, all as often."""
    return st.sampled_from(range(most, -1, -1))


@st.composite
def outlier_mask(draw):
    """Rows with many ties, and any share of them."""
    shape = (*draw(heads), draw(st.integers(0, 12)))
    return dict(x=draw(grid(*shape, low=-4, high=4)), ratio=draw(shares))


def owned(shape, most, random):
    """Give each token of each head one channel, no channel more than `most` tokens."""
    tokens, width = shape[-2:]
    mask = np.zeros(shape, bool)
    for head in np.ndindex(*shape[:-2]):
        channels = random.permutation(width)
        for token in range(min(tokens, most * width)):
            mask[(*head, token, channels[token % width])] = True
    return mask


def coded(row, bits, count, random):
    """Return a row of codes on the grid's ends, a quarter off where owned, and outliers outside."""
    top = 2**bits - 1
    codes = random.integers(0, top, len(row), endpoint=True).astype(float)
    aside = np.where(codes == 0, 1, np.where(codes == top, -1, random.choice([-1, 1], len(row))))
    codes += row * aside / 4
    free = random.permutation(np.flatnonzero(~row))
    beyond = random.integers(1, 8, count, endpoint=True)
    codes[free[:1]], codes[free[1:2]] = 0, top
    # as far above as below, so that the mean of all is within the rest
    codes[free[2 : 2 + count]], codes[free[2 + count : 2 + 2 * count]] = -beyond, top + beyond
    return codes + random.integers(-8, 8, endpoint=True)


@st.composite
def gear_spans(draw, shape, by, bits, outliers):
    """A span on exact codes but for a quarter of a step here and there, and the error's rank.

    In each head a token errs in at most one channel: the error's columns are orthogonal, and every
    factor of it has one right answer.
    """
    random = np.random.default_rng(draw(seeds))
    kv_heads, tokens, width = shape[-3:]
    members = tokens if by == "channel" else kv_heads * width
    count = int(outliers * members / 2)
    room = members - 2 - 2 * count
    most = max(0, room) if by == "channel" else tokens * (room >= kv_heads)
    errs = owned(shape, most, random)
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
    """Few bits, so that quarters of a step are exact in 16-bit types; few outliers, or none."""
    return dict(
        bits=draw(st.integers(1, 4)),
        outliers=draw(st.sampled_from([0.5, 0.0, 0.4])),
        fill=draw(st.booleans()),
        seed=draw(st.integers(0, 3)),
        scales=draw(scales),
    )


@st.composite
def gear_compress(draw, sides=("channel", "token"), whole=False):
    """A span of keys or of values, corrected at any rank its error has, or at the whole of it."""
    settings, by = draw(gear_settings()), draw(st.sampled_from(sides))
    before, width = draw(before_tokens), draw(st.integers(1, 4))
    shape = (*before, draw(lengths), width)
    x, rank = draw(gear_spans(shape, by, settings["bits"], settings["outliers"]))
    return dict(x=x, by=by, rank=rank if whole else draw(up_to(rank)), **settings)


@st.composite
def gear_blocks(draw):
    """What is stored of a span."""
    return reference.gear_compress(**draw(gear_compress()))


@st.composite
def gear_streams(draw, settings, spans):
    """Spans of keys and values of the given lengths, and the least rank of their errors."""
    before, width = draw(before_tokens), draw(st.integers(1, 3))
    grid = settings["bits"], settings["outliers"]
    keys, key_ranks = zip(
        *(draw(gear_spans((*before, n, width), "channel", *grid)) for n in spans), strict=True
    )
    values, value_ranks = zip(
        *(draw(gear_spans((*before, n, width), "token", *grid)) for n in spans), strict=True
    )
    ranks = [min(pair) for pair in zip(key_ranks, value_ranks, strict=True)]
    return torch.cat(keys, -2), torch.cat(values, -2), ranks


@st.composite
def gear_prefill(draw):
    """A prompt."""
    settings = draw(gear_settings())
    keys, values, (rank,) = draw(gear_streams(settings, [draw(lengths)]))
    ranks = dict(rank=draw(up_to(rank)), decoded_rank=draw(st.integers(0, 3)))
    return dict(keys=keys, values=values, block=draw(st.integers(1, 6)), **ranks, **settings)


@st.composite
def gear_append(draw):
    """A cache that has seen a prompt and some decoding, and up to three blocks more."""
    settings, block = draw(gear_settings()), draw(st.sampled_from([4, 3, 5, 2, 1]))
    prompt, blocks = draw(lengths), draw(st.integers(0, 2))
    keys, values, ranks = draw(gear_streams(settings, [prompt, *[block] * (blocks + 1)]))
    settings["decoded_rank"] = draw(up_to(min(ranks[1:])))
    start = draw(st.integers(prompt, prompt + blocks * block))
    stop = draw(st.integers(start, prompt + (blocks + 1) * block - 1))
    x = dict(keys=keys[..., :prompt, :], values=values[..., :prompt, :], block=block, **settings)
    cache = reference.gear_prefill(**x, rank=min(2, ranks[0]))
    cache = reference.gear_append(cache, *(y[..., prompt:start, :] for y in (keys, values)))
    new = (y[..., start:stop, :].clone() for y in (keys, values))
    return dict(zip(("cache", "keys", "values"), (cache, *new), strict=True))


@st.composite
def gear_caches(draw):
    """A cache that has seen anything."""
    return reference.gear_append(**draw(gear_append()))


@st.composite
def low_rank(draw):
    """Matrices of orthogonal columns, of zeros, or any where a single column is asked for."""
    random = np.random.default_rng(draw(seeds))
    shape = (*draw(st.sampled_from([(), (2,), (2, 2), (0, 2)])), *draw(matrices))
    kind = draw(st.sampled_from(["orthogonal", "zero", "any"]))
    marks = owned(shape, shape[-2], random)
    x = torch.from_numpy(marks * random.choice([-1.0, 1.0], shape)).float()
    ranks = marks.any(-2).sum(-1)
    most = int(ranks.min()) if ranks.size else 4
    if kind == "any":
        x, most = draw(real(*shape)), 1
    return dict(
        x=x * 0 if kind == "zero" else x,
        rank=draw(up_to(most)),
        rounds=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 3)),
    )


INPUTS = dict(
    outlier_mask=outlier_mask(),
    low_rank=low_rank(),
    gear_compress=gear_compress(),
    gear_reconstruct=st.fixed_dictionaries(dict(block=gear_blocks(), exact_outliers=st.booleans())),
    gear_prefill=gear_prefill(),
    gear_append=gear_append(),
    gear_read=st.fixed_dictionaries(dict(cache=gear_caches(), exact_outliers=st.booleans())),
)

FRESH = dict(bits=2, outliers=0.5, seed=0, scales=None)
# no member to take a mean of; nothing to decompose
CORNERS = dict(
    gear_compress=[dict(x=torch.ones(1, 2, 0, 2), by="channel", rank=0, fill=True, **FRESH)],
    low_rank=[dict(x=torch.zeros(2, 3, 4), rank=2, rounds=2, seed=0)],
)
