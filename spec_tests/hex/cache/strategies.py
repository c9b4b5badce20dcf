"""Strategies for short streams, their settings, and caches after some tokens."""

# pyright: reportArgumentType=false

from typing import get_args

import torch
from hypothesis import strategies as st

import reference
from reference import HexConfig
from reference.contract.types import Mode
from spec_tests.from_signature import draw_choices
from spec_tests.hex.kcvt.strategies import scale_beyond_float16, widths
from spec_tests.strategies import Refusal, generators, needs_expander_mask

BLOCK, KV_HEADS, WIDTH = 8, 2, 4
"""Small sizes: a block has 8 tokens, and a token 8 channels."""

MODES = get_args(Mode)


@st.composite
def configs(draw, modes=MODES, extended=False, **fixed):
    """Settings for small streams; the expander has degree 4."""
    drawn = HexConfig(
        bits=draw(widths),
        density=draw(st.sampled_from([0.0, 0.5, 1.0])),
        heavy=draw(st.sampled_from([0.0, 0.125])),
        recent=draw(st.sampled_from([0, 3])),
        block=BLOCK,
        period=draw(st.integers(1, 2)),
        scales=draw(st.sampled_from([None, torch.float32])),
        mode=draw(st.sampled_from(modes)),
        **draw(draw_choices(HexConfig, "mode", "scales", "near", "tile")),
    )
    if extended:
        drawn = drawn._replace(value_bits=draw(widths))
    return drawn._replace(**fixed)


@st.composite
def streams(draw, tokens, batch=((), (2,), (), (2,), (0,))):
    """Queries, keys and values with one heavy hitter a block, far above all other tokens.

    It is one of the first two tokens of its block, so that its mass exceeds the first token's.
    """
    shape = draw(st.sampled_from(batch))
    group = draw(st.integers(1, 2))
    noise = torch.randn(*shape, KV_HEADS * (2 + group), tokens, WIDTH, generator=draw(generators))
    keys, values, queries = noise.split([KV_HEADS, KV_HEADS, KV_HEADS * group], -3)
    keys, queries = keys / 4, 2 + queries / 4
    for start in range(0, tokens, BLOCK):
        heavy = start + draw(st.integers(0, 1))
        keys[..., heavy : heavy + 1, :] += 2
    return queries, keys.clone(), values.clone()


@st.composite
def prefill(draw, extended=False):
    """Inputs of a prompt of up to three blocks and a part of one."""
    queries, keys, values = draw(streams(draw(st.integers(0, 3 * BLOCK + 5))))
    return dict(queries=queries, keys=keys, values=values, config=draw(configs(extended=extended)))


@st.composite
def caches(draw, modes=MODES, extended=False):
    """A cache after a prompt and some decoding."""
    prompt, decoded = draw(st.integers(0, 2 * BLOCK + 5)), draw(st.integers(0, BLOCK))
    stream = draw(streams(prompt + decoded))
    cache = reference.hex_prefill(
        *(x[..., :prompt, :] for x in stream), config=draw(configs(modes, extended))
    )
    return reference.hex_append(cache, *(x[..., prompt:, :] for x in stream))


@st.composite
def append(draw, extended=False):
    """A cache and its next tokens, up to two blocks in one call.

    Scales are in single precision. Later queries read what the call itself stores, so that scales
    in the dtype of each cache would differ.
    """
    prompt, decoded = draw(st.integers(0, 2 * BLOCK + 5)), draw(st.integers(0, 2 * BLOCK))
    stream = draw(streams(prompt + decoded))
    queries, keys, values = (x[..., prompt:, :].clone() for x in stream)
    config = draw(configs(extended=extended, scales=torch.float32))
    cache = reference.hex_prefill(*(x[..., :prompt, :] for x in stream), config=config)
    return dict(cache=cache, queries=queries, keys=keys, values=values)


def half_precision_cache(width, half, mode="append"):
    """Return a half-precision cache of 64 compressed tokens and five more, and its stream.

    Keys and values are offset from zero, where half precision rounds their differences coarsely.
    """
    stream = torch.randn(3, KV_HEADS, 70, width, generator=torch.Generator().manual_seed(0))
    stream = (stream + torch.tensor([0.0, 2.0, 4.0]).view(3, 1, 1, 1)).to(half)
    config = HexConfig(bits=4, block=32, density=0.0, near=True, recent=2, mode=mode)
    return reference.hex_prefill(*(x[:, :-1] for x in stream), config=config), stream


INPUTS = dict(
    hex_prefill=prefill(),
    hex_append=append(),
    hex_recompress=dict(cache=caches(("full", "oracle"))),
    hex_read=dict(cache=caches()),
)

EXTENDED = dict(
    hex_prefill=prefill(extended=True),
    hex_append=append(extended=True),
    hex_recompress=dict(cache=caches(("full", "oracle"), True)),
    hex_read=dict(cache=caches(extended=True)),
)

DRAWN = dict.fromkeys(
    ("hex_prefill", "hex_append", "hex_recompress", "hex_read"), needs_expander_mask
)

generator = torch.Generator().manual_seed(7)
keys, values = torch.randn(2, KV_HEADS, 11, WIDTH, generator=generator)
config = HexConfig(block=BLOCK, density=0.5, recent=2, mode="full", scales=torch.float16)
cache = reference.hex_prefill(keys, keys, values, config)
growing = reference.hex_prefill(keys, keys, values, config._replace(mode="append"))

bad_stream = [
    Refusal("queries", lambda q: q[:, :-1], ValueError, "shape"),
    Refusal("queries", lambda q: q[:1], ValueError, "multiple of the 2"),
    Refusal("keys", scale_beyond_float16, ValueError, "torch.float16"),
    Refusal("values", scale_beyond_float16, ValueError, "torch.float16"),
    Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
    Refusal("values", lambda v: v[:, :-1], ValueError, "shape"),
]

GOOD = dict(hex_read=dict(cache=cache))

REFUSALS = dict(
    hex_prefill=(dict(queries=keys, keys=keys, values=values, config=config), bad_stream),
    hex_append=(
        dict(cache=cache, queries=keys, keys=keys, values=values),
        [*bad_stream, Refusal("keys", lambda k: k.double(), TypeError, "torch.float32")],
    ),
    hex_recompress=(
        dict(cache=cache),
        [Refusal("cache", growing, ValueError, "mode 'full' or 'oracle', got 'append'")],
    ),
)  # fmt: skip
