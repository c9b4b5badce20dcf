"""Inputs of HEX's heavy hitters, KCVT and bit packing."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.draw import booleans, grid, heads, tokens
from spec_tests.inputs.kcvt_refusals import REFUSALS

__all__ = ["INPUTS", "REFUSALS"]

widths = st.integers(1, 8)
"""Bits of a code."""

batches = st.sampled_from([(), (2,), (), (2,), (0,)])

ratios = st.sampled_from([0.0, 0.02, 0.1, 0.25, 0.5, 1.0])

value_groups = st.sampled_from(["token", "head"])


@st.composite
def on_codes(draw, kept, bits):
    """Groups along the last axis, of which every code is exact, or exactly half way.

    The entries that remain span the range from the first to the last of them in steps that are
    powers of two; kept entries lie anywhere, mostly far outside.
    """
    # 16-bit types hold whole numbers up to 256 exactly
    half, top = (2, 2**bits - 1) if bits < 8 else (1, 255)
    offset = 8 if bits < 7 else 0
    x = torch.zeros(kept.shape, dtype=torch.float64)
    for group in np.ndindex(*kept.shape[:-1]):
        row, mask = x[group], kept[group]
        places = draw(st.lists(st.integers(0, half * top), min_size=len(row), max_size=len(row)))
        codes = torch.tensor(places, dtype=torch.float64) / half
        rest = (~mask).nonzero().flatten()
        codes[rest[:1]], codes[rest[1:][-1:]] = 0.0, float(top)
        codes[mask] *= 16
        low, power = draw(st.integers(-offset, offset)), draw(st.integers(-4, 2))
        row.copy_((low + codes) * 2.0**power)
    return x.float()


@st.composite
def attention_mass(draw):
    """Grouped heads, queries fewer than tokens, and a span of any length."""
    batch, width = draw(batches), draw(st.integers(1, 4))
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    length = draw(st.integers(0, 8))
    count = draw(st.integers(0, length))
    return dict(
        queries=draw(grid(*batch, kv_heads * group, count, width, low=-16)),
        keys=draw(grid(*batch, kv_heads, length, width, low=-16)),
        span=draw(st.none() | st.integers(0, length)),
        causal=length == 0 or draw(st.booleans()),
        normalize=draw(st.booleans()),
    )


@st.composite
def masses(draw):
    """Attention mass with many ties."""
    return draw(grid(*draw(heads), draw(tokens), low=-2, high=6))


@st.composite
def heavy_hitter_mask(draw):
    """Any ratio, and a recent window that may cover everything."""
    return dict(
        mass=draw(masses()),
        ratio=draw(ratios),
        recent=draw(st.integers(0, 30)),
        outside_recent=draw(st.booleans()),
    )


@st.composite
def quantise(draw):
    """Groups on exact codes; kept entries anywhere, up to all of them."""
    kept, bits = draw(booleans(*draw(heads), draw(st.integers(0, 12)))), draw(widths)
    return dict(
        x=draw(on_codes(kept, bits)),
        bits=bits,
        kept=kept if kept.any() else draw(st.none() | st.just(kept)),
        scales=draw(st.sampled_from([None, torch.float32, torch.float16])),
    )


@st.composite
def dequantise(draw):
    """Any codes, steps and minima."""
    groups, members = draw(heads), draw(st.integers(0, 12))
    return dict(
        codes=draw(codes_below(8, *groups, members)),
        steps=draw(grid(*groups)),
        minima=draw(grid(*groups, low=-16)),
    )


@st.composite
def codes_below(draw, bits, *shape):
    """Codes of a few bits."""
    return draw(grid(*shape, high=2**bits - 1, scale=1)).to(torch.uint8)


@st.composite
def kcvt(draw):
    """Columns of keys and rows of values on exact codes."""
    shape = (*draw(batches), draw(st.integers(1, 2)), draw(st.integers(0, 6)))
    kept = draw(booleans(*shape, draw(st.integers(1, 4))))
    bits, group = draw(widths), draw(value_groups)
    return dict(
        keys=draw(on_codes(kept.mT, bits)).mT.contiguous(),
        values=draw(values_on_codes(kept, bits, group)),
        bits=bits,
        kept=kept if kept.any() else draw(st.none() | st.just(kept)),
        value_group=group,
        scales=draw(st.sampled_from([None, torch.float32])),
    )


@st.composite
def values_on_codes(draw, kept, bits, group):
    """Values whose groups are on exact codes, whichever the groups are."""
    if group == "head":
        return draw(on_codes(kept, bits))
    rows = draw(on_codes(kept.transpose(-3, -2).flatten(-2), bits))
    return rows.unflatten(-1, (kept.shape[-3], -1)).transpose(-3, -2).contiguous()


@st.composite
def pack_bits(draw):
    """Rows of any length, words cut at any bit."""
    bits = draw(widths)
    return dict(codes=draw(codes_below(bits, *draw(heads), draw(st.integers(0, 40)))), bits=bits)


@st.composite
def unpack_bits(draw):
    """Any words, whatever lies past the end."""
    bits, length = draw(widths), draw(st.integers(0, 40))
    shape = (*draw(heads), -(-bits * length // 32))
    size = torch.Size(shape).numel()
    words = draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=size, max_size=size))
    words = torch.tensor(words, dtype=torch.int32).reshape(shape)
    return dict(words=words, bits=bits, length=length)


INPUTS = dict(
    attention_mass=attention_mass(),
    heavy_hitter_mask=heavy_hitter_mask(),
    recent_mask=st.fixed_dictionaries(dict(tokens=tokens, recent=st.integers(0, 30))),
    h2o_mask=heavy_hitter_mask(),
    quantise=quantise(),
    dequantise=dequantise(),
    kcvt=kcvt(),
    pack_bits=pack_bits(),
    unpack_bits=unpack_bits(),
)
