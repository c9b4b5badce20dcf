"""Strategies for spans to compress, and for their masks."""

import torch
from hypothesis import strategies as st

import reference
from reference import HexConfig
from reference.hex.cache import compress_sides
from spec_tests.hex.heavy_hitters.strategies import batches
from spec_tests.hex.kcvt.strategies import key_heads, span_on_codes, widths
from spec_tests.strategies import Refusal, booleans


@st.composite
def spans(draw):
    """Inputs with exact codes, and masks of every density."""
    batch, kv_heads = draw(batches), draw(key_heads)
    tokens, width = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    expander = draw(st.booleans() | st.just(booleans(tokens, kv_heads * width)))
    if isinstance(expander, bool):
        expander = torch.full((tokens, kv_heads * width), expander)
    else:
        expander = draw(expander)
    dynamic = draw(booleans(*batch, tokens))
    kept = reference.hex_mask(expander, dynamic, kv_heads)
    return dict(**draw(span_on_codes(kept)), expander=expander, dynamic=dynamic)


@st.composite
def masks(draw):
    """Any static and any dynamic mask."""
    span = draw(spans())
    kv_heads = span["keys"].shape[-3]
    return dict(expander=span["expander"], dynamic=span["dynamic"], kv_heads=kv_heads)


@st.composite
def blocks(draw):
    """A block and its static mask."""
    span = draw(spans())
    return dict(block=reference.hex_compress(**span), expander=span["expander"])


@st.composite
def blocks_of_two_widths(draw):
    """A block whose values have bits of their own, and its static mask."""
    span = draw(spans())
    names = ("bits", "value_group", "scales")
    config = HexConfig(**{name: span.pop(name) for name in names}, value_bits=draw(widths))
    return dict(block=compress_sides(config, *span.values()), expander=span["expander"])


INPUTS = dict(hex_mask=masks(), hex_compress=spans(), hex_reconstruct=blocks())

EXTENDED = dict(hex_reconstruct=blocks_of_two_widths())

generator = torch.Generator().manual_seed(7)
keys, values = torch.randn(2, 2, 11, 4, generator=generator)
expander = reference.expander_mask(11, 8, 1.0, near=True)
dynamic = torch.arange(11) % 2 == 0
block = reference.hex_compress(keys, values, expander, dynamic)
another_length = Refusal("expander", lambda e: torch.cat([e, e]), ValueError, "11")

REFUSALS = dict(
    hex_mask=(
        dict(expander=expander, dynamic=dynamic, kv_heads=2),
        [another_length, Refusal("kv_heads", 3, ValueError, "divide channels = 8")],
    ),
    hex_compress=(
        dict(keys=keys, values=values, expander=expander, dynamic=dynamic & False, bits=3,
             value_group="token", scales=torch.float16),
        [
            another_length,
            Refusal("expander", lambda e: torch.cat([e, e], 1), ValueError, "(11, 8)"),
            Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
        ],
    ),
    hex_reconstruct=(
        dict(block=block, expander=expander),
        [
            another_length,
            Refusal("expander", lambda e: torch.cat([e, e], 1), ValueError, "(11, 8)"),
            Refusal("expander", lambda e: ~e, ValueError, "entries stored"),
        ],
    ),
)  # fmt: skip
