"""Strategies for groups to quantise, and for codes to restore."""

from operator import itemgetter

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import HexConfig
from spec_tests.from_signature import draw_choices
from spec_tests.hex.heavy_hitters.strategies import batches
from spec_tests.strategies import Refusal, booleans, grid, heads, importance

widths = st.integers(1, 8)
"""Width of a code in bits."""

key_heads = st.sampled_from([2, 3, 2, 1])
"""Numbers of heads: mostly several, which a group of values may span."""

value_groups = draw_choices(HexConfig).map(itemgetter("value_group"))


@st.composite
def groups_exact_on_codes(draw, kept, bits):
    """Groups along the last axis whose codes are exact, or exactly halfway between two.

    The step is a power of two, and the remaining entries cover the whole range of codes. Kept
    entries are anywhere, mostly far below or above this range.
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
        codes[mask] = 16 * codes[mask] - 8 * top
        low, power = draw(st.integers(-offset, offset)), draw(st.integers(-4, 2))
        row.copy_((low + codes) * 2.0**power)
    return x.float()


@st.composite
def quantise(draw):
    """Inputs with exact codes; kept entries anywhere, up to all of them."""
    kept, bits = draw(booleans(*draw(heads), draw(st.integers(0, 12)))), draw(widths)
    return dict(
        x=draw(groups_exact_on_codes(kept, bits)),
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
        steps=draw(importance(*groups)),
        minima=draw(importance(*groups, low=-16)),
    )


@st.composite
def codes_below(draw, bits, *shape):
    """Codes of a few bits."""
    return draw(grid(*shape, high=2**bits - 1, scale=1)).to(torch.uint8)


@st.composite
def kcvt(draw):
    """Columns of keys and rows of values with exact codes."""
    shape = (*draw(batches), draw(key_heads), draw(st.integers(0, 6)))
    kept = draw(booleans(*shape, draw(st.integers(1, 4))))
    mask = kept if kept.any() else draw(st.none() | st.just(kept))
    return dict(**draw(span_on_codes(kept)), kept=mask)


@st.composite
def span_on_codes(draw, kept):
    """Keys and values with exact codes but for kept entries, and their settings."""
    bits, group = draw(widths), draw(value_groups)
    return dict(
        keys=draw(groups_exact_on_codes(kept.mT, bits)).mT.contiguous(),
        values=draw(values_on_codes(kept, bits, group)),
        bits=bits,
        value_group=group,
        scales=draw(st.sampled_from([None, torch.float32])),
    )


@st.composite
def values_on_codes(draw, kept, bits, group):
    """Values with exact codes, whichever the value group is."""
    if group == "head":
        return draw(groups_exact_on_codes(kept, bits))
    rows = draw(groups_exact_on_codes(kept.transpose(-3, -2).flatten(-2), bits))
    return rows.unflatten(-1, (kept.shape[-3], -1)).transpose(-3, -2).contiguous()


def scale_beyond_float16(tensor: Tensor) -> Tensor:
    """Return a tensor whose scales exceed float16."""
    return tensor * 2.0**20


x = torch.tensor([[0.5, 0.25, 0.75, 0.0], [-1.0, 1.0, 3.0, 2.0]])
keys = torch.stack([x, -x])
mask = x > 0.5
codes = torch.tensor([[0, 3, 7, 1], [2, 2, 5, 4]], dtype=torch.uint8)

restored = torch.randn(1, 24, 3, generator=torch.Generator().manual_seed(0))
# a value near 0 is the difference of a minimum and a number of steps
CORNERS = dict(kcvt=[dict(keys=8 * restored, values=8 * restored, bits=3)])

REFUSALS = dict(
    quantise=(
        dict(x=x, bits=3, kept=mask, scales=torch.float16),
        [
            Refusal("x", scale_beyond_float16, ValueError, "torch.float16"),
            Refusal("scales", torch.bfloat16, ValueError, "torch.float16"),
        ],
    ),
    dequantise=(
        dict(codes=codes, steps=x[:, 1], minima=x[:, 0]),
        [],
    ),
    kcvt=(
        dict(keys=keys, values=keys, bits=3, kept=mask.expand(2, 2, 4).clone(),
             value_group="token", scales=torch.float16),
        [
            Refusal("keys", lambda k: k[:0], ValueError, "at least 1"),
            Refusal("keys", scale_beyond_float16, ValueError, "torch.float16"),
            Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
            Refusal("values", scale_beyond_float16, ValueError, "torch.float16"),
        ],
    ),
)  # fmt: skip
