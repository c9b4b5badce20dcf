"""Strategies for codes, and for the words that hold them."""

import torch
from hypothesis import strategies as st

from spec_tests.hex.kcvt.strategies import codes, codes_below, widths
from spec_tests.strategies import Refusal, heads


@st.composite
def pack_bits(draw):
    """Rows of any length, where words end at any bit."""
    bits = draw(widths)
    return dict(codes=draw(codes_below(bits, *draw(heads), draw(st.integers(0, 40)))), bits=bits)


@st.composite
def unpack_bits(draw):
    """Any words, with any bits after the last code."""
    bits, length = draw(widths), draw(st.integers(0, 40))
    shape = (*draw(heads), -(-bits * length // 32))
    size = torch.Size(shape).numel()
    words = draw(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=size, max_size=size))
    words = torch.tensor(words, dtype=torch.int32).reshape(shape)
    return dict(words=words, bits=bits, length=length)


REFUSALS = dict(
    pack_bits=(
        dict(codes=codes, bits=3),
        [Refusal("codes", lambda c: c + 4, ValueError, "[0, 7]")],
    ),
    unpack_bits=(
        dict(words=torch.tensor([[5], [-7]], dtype=torch.int32), bits=3, length=4),
        [Refusal("words", lambda w: torch.cat([w, w], -1), ValueError, "shape")],
    ),
)
