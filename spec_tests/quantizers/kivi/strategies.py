"""Strategies for streams with exact codes in each group."""

import numpy as np
import torch
from hypothesis import strategies as st

import reference
from spec_tests.hex.kcvt.strategies import scale_beyond_float16, widths
from spec_tests.strategies import Refusal

seeds = st.integers(0, 2**16)
scales = st.sampled_from([None, torch.float32])
before_tokens = st.sampled_from([(2,), (1,), (2, 1), (3,), (2, 2), (0, 2)])
"""Shapes of heads, and of batches of heads."""


def on_grid(shape, bits, seed):
    """Groups along the last axis whose codes are exact, or exactly halfway between two."""
    random = np.random.default_rng(seed)
    # 16-bit types hold whole numbers up to 256 exactly
    half, top, offset = (2 if bits < 8 else 1), 2**bits - 1, (8 if bits < 7 else 0)
    codes = random.integers(0, half * top, shape, endpoint=True) / half
    codes[..., -1:], codes[..., :1] = top, 0
    low = random.integers(-offset, offset, (*shape[:-1], 1), endpoint=True)
    power = random.integers(-4, 2, (*shape[:-1], 1), endpoint=True)
    return torch.from_numpy((low + codes) * 2.0**power).float()


@st.composite
def kivi_settings(draw):
    """Settings with small groups, and buffers of one to three groups."""
    group = draw(st.integers(1, 2))
    return dict(
        bits=draw(widths),
        group=group,
        residual=group * draw(st.integers(1, 2)),
        scales=draw(scales),
        value_bits=draw(st.none() | widths),
    )


@st.composite
def kivi_streams(draw, settings, tokens, shapes=before_tokens):
    """Keys with exact codes in the groups of each block, and values in those of each token."""
    bits, group, residual = settings["bits"], settings["group"], settings["residual"]
    value_bits = settings["value_bits"] or bits
    shape = draw(shapes)
    width, blocks = group * draw(st.integers(1, 2)), -(-tokens // residual)
    key_groups = (*shape, width, blocks * residual // group, group)
    value_groups = (*shape, tokens, width // group, group)
    keys = on_grid(key_groups, bits, draw(seeds)).flatten(-2).mT[..., :tokens, :]
    return keys.clone(), on_grid(value_groups, value_bits, draw(seeds)).flatten(-2)


@st.composite
def kivi_prefill(draw):
    """Inputs of a prompt of up to three buffers and a part of one."""
    settings = draw(kivi_settings())
    tokens = draw(st.integers(0, 3 * settings["residual"] + 1))
    keys, values = draw(kivi_streams(settings, tokens))
    return dict(keys=keys, values=values, **settings)


@st.composite
def kivi_append(draw):
    """A cache and its next tokens."""
    settings = draw(kivi_settings())
    prompt = draw(st.integers(0, 2 * settings["residual"]))
    new = draw(st.integers(0, settings["residual"] + 1))
    stream = draw(kivi_streams(settings, prompt + new))
    cache = reference.kivi_prefill(*(x[..., :prompt, :] for x in stream), **settings)
    keys, values = (x[..., prompt:, :].clone() for x in stream)
    return dict(cache=cache, keys=keys, values=values)


@st.composite
def kivi_caches(draw):
    """A cache after any tokens."""
    x = draw(kivi_append())
    return reference.kivi_append(**x)


INPUTS = dict(kivi_read=dict(cache=kivi_caches()))

generator = torch.Generator().manual_seed(7)
keys, values = torch.randn(2, 2, 9, 6, generator=generator)
layout = dict(bits=2, group=2, residual=4)
cache = reference.kivi_prefill(keys, values, **layout, scales=torch.float16)

bad_prompt = [
    Refusal("keys", scale_beyond_float16, ValueError, "torch.float16"),
    Refusal("keys", lambda k: k[:0], ValueError, "of at least 1"),
    Refusal("values", scale_beyond_float16, ValueError, "torch.float16"),
    Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
    Refusal("values", lambda v: v[:, :-1], ValueError, "shape"),
]
bad_arrival = [
    Refusal("keys", lambda k: torch.cat([k, k], -3), ValueError, "shape"),
    Refusal("keys", scale_beyond_float16, ValueError, "torch.float16"),
    Refusal("keys", lambda k: k.double(), TypeError, "torch.float32"),
    *bad_prompt[2:],
]
bad_layout = [
    Refusal("group", 8, ValueError, "a multiple of group = 8"),
    Refusal("group", 4, ValueError, "divide width = 6"),
    Refusal("residual", 5, ValueError, "multiple of group = 2"),
]

GOOD = dict(kivi_read=dict(cache=cache))

REFUSALS = dict(
    kivi_prefill=(
        dict(keys=keys, values=values, **layout, scales=torch.float16, value_bits=3),
        [*bad_prompt, *bad_layout],
    ),
    kivi_append=(dict(cache=cache, keys=keys, values=values), bad_arrival),
)
