"""Inputs of what the quantised caches weigh."""

import torch
from hypothesis import strategies as st

from spec_tests.hex.kcvt.draws import widths
from spec_tests.inputs.gear import gear_caches, shares
from spec_tests.inputs.kivi import kivi_caches, kivi_settings
from spec_tests.inputs.quantizer_size_refusals import REFUSALS

__all__ = ["INPUTS", "REFUSALS"]

dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


@st.composite
def kivi_size(draw):
    """Any prompt, any layout."""
    settings = draw(kivi_settings())
    del settings["scales"]
    sizes = dict(
        kv_heads=draw(st.integers(1, 2)), width=settings["group"] * draw(st.integers(1, 3))
    )
    return dict(tokens=draw(st.integers(0, 12)), **settings, **sizes, dtype=draw(dtypes))


INPUTS = dict(
    quantizer_bytes=st.fixed_dictionaries(dict(cache=kivi_caches() | gear_caches())),
    kivi_size=kivi_size(),
    kivi_share=st.fixed_dictionaries(
        dict(
            bits=widths,
            group=st.integers(1, 128),
            residual=st.integers(0, 128),
            tokens=st.integers(1, 6000),
        )
    ),
    gear_size=st.fixed_dictionaries(
        dict(
            tokens=st.integers(0, 40),
            bits=widths,
            outliers=shares,
            rank=st.integers(0, 5),
            kv_heads=st.integers(1, 3),
            width=st.integers(1, 5),
            dtype=dtypes,
        )
    ),
    quantizer_sizes=st.fixed_dictionaries(
        dict(
            prompts=st.lists(st.integers(1, 6000), min_size=1, max_size=3).map(tuple),
            kv_heads=st.integers(1, 40),
            width=st.sampled_from([64, 128]),
        )
    ),
)
