"""Strategies for caches, and for prompts whose size is computed in advance."""

import torch
from hypothesis import strategies as st

from spec_tests.hex.kcvt.strategies import widths
from spec_tests.hex.size.strategies import dtypes
from spec_tests.quantizers.gear_cache.strategies import cache, gear_caches
from spec_tests.quantizers.kivi.strategies import bad_layout, kivi_caches, kivi_settings, layout
from spec_tests.quantizers.outliers.strategies import shares


@st.composite
def kivi_size(draw):
    """Inputs with any prompt and any layout."""
    settings = draw(kivi_settings())
    del settings["scales"]
    sizes = dict(
        kv_heads=draw(st.integers(1, 2)), width=settings["group"] * draw(st.integers(1, 3))
    )
    return dict(tokens=draw(st.integers(0, 12)), **settings, **sizes, dtype=draw(dtypes))


INPUTS = dict(
    quantizer_bytes=dict(cache=kivi_caches() | gear_caches()),
    gear_size=dict(
        tokens=st.integers(0, 40),
        bits=widths,
        outliers=shares,
        rank=st.integers(0, 5),
        kv_heads=st.integers(1, 3),
        width=st.integers(1, 5),
        dtype=dtypes,
        value_bits=st.none() | widths,
    ),
)

GOOD = dict(
    quantizer_bytes=dict(cache=cache),
    gear_size=dict(
        tokens=16,
        bits=4,
        outliers=0.3,
        rank=2,
        kv_heads=2,
        width=4,
        dtype=torch.float16,
        value_bits=2,
    ),
)

REFUSALS = dict(
    kivi_size=(
        dict(tokens=16, **layout, kv_heads=2, width=6, dtype=torch.float16, value_bits=3),
        bad_layout,
    )
)
