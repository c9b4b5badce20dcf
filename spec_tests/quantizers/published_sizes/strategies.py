"""Strategies for prompts and models."""

from hypothesis import strategies as st

from spec_tests.hex.kcvt.strategies import widths
from spec_tests.hex.size.strategies import bad_prompts, prompts
from spec_tests.strategies import Refusal

INPUTS = dict(
    kivi_share=dict(
        bits=widths,
        group=st.integers(1, 128),
        residual=st.integers(0, 128),
        tokens=st.integers(1, 6000),
    ),
    quantizer_sizes=dict(
        prompts=prompts, kv_heads=st.integers(1, 40), width=st.sampled_from([64, 128])
    ),
)

GOOD = dict(kivi_share=dict(bits=2, group=64, residual=64, tokens=900))

REFUSALS = dict(
    quantizer_sizes=(
        dict(prompts=(900, 1304), kv_heads=2, width=64),
        [*bad_prompts, Refusal("width", 96, ValueError, "a multiple of 64")],
    )
)
