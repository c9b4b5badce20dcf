"""Strategies for caches, and for prompts whose size is computed in advance."""

import torch
from hypothesis import strategies as st

from spec_tests.hex.cache.strategies import cache, caches, config, configs
from spec_tests.strategies import Refusal

prompts = st.lists(st.integers(1, 6000), min_size=1, max_size=3).map(tuple)
dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])

INPUTS = dict(
    hex_bytes=dict(cache=caches()),
    hex_size=dict(
        config=configs(),
        tokens=st.integers(0, 60),
        kv_heads=st.integers(1, 3),
        width=st.integers(1, 5),
        dtype=dtypes,
    ),
    paper_size=dict(prompts=prompts, kv_heads=st.integers(1, 8), width=st.integers(1, 128)),
)

EXTENDED = dict(hex_bytes=dict(cache=caches(extended=True)))

bad_prompts = [
    Refusal("prompts", (), ValueError, "at least 1 length"),
    Refusal("prompts", (900, 0), ValueError, "must be >= 1, got 0"),
    Refusal("prompts", (900.0,), TypeError, "integer"),
]

GOOD = dict(
    hex_bytes=dict(cache=cache),
    hex_size=dict(config=config, tokens=16, kv_heads=2, width=4, dtype=torch.float16),
)

REFUSALS = dict(paper_size=(dict(prompts=(900, 1304), kv_heads=2, width=4), bad_prompts))
