"""A strategy for HEX caches whose heads are wide enough for the kernels."""

from typing import Any

import torch
from hypothesis import strategies as st

import optimized
from reference import HexConfig

KV_HEADS = 2


@st.composite
def wide_cache_inputs(
    draw, bits=(2, 3, 4), widths=(64, 128), groups=(1, 4, 8, 12), modes=("append",)
):
    """Draw one query of every head, and a cache of a prompt, some blocks and a residual buffer.

    A span of 96 tokens is one tile, a span of 32 part of one, and a span of 192 two.
    """
    width, group = draw(st.sampled_from(widths)), draw(st.sampled_from(groups))
    batch, dtype = draw(st.sampled_from([(), (2,)])), draw(st.sampled_from(DTYPES))
    prompt, decoded = draw(st.sampled_from([0, 31, 96, 193])), draw(st.sampled_from([0, 53, 97]))
    config = HexConfig(
        bits=draw(st.sampled_from(bits)),
        density=draw(st.sampled_from([0.0, 0.125])),
        heavy=draw(st.sampled_from([0.0, 0.02])),
        recent=draw(st.sampled_from([0, 3])),
        block=draw(st.sampled_from([32, 96])),
        mode=draw(st.sampled_from(modes)),
        value_group=draw(st.sampled_from(["token", "head"])),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    heads, tokens = KV_HEADS * (2 + group), prompt + decoded
    noise = torch.randn(*batch, heads, tokens + 1, width, generator=generator).to(dtype)
    keys, values, queries = noise.split([KV_HEADS, KV_HEADS, KV_HEADS * group], -3)
    stream = queries / 4, keys + 1, values + 1
    cache = optimized.hex_prefill(*(x[..., :prompt, :].clone() for x in stream), config=config)
    cache = optimized.hex_append(cache, *(x[..., prompt:tokens, :].clone() for x in stream))
    return dict(queries=stream[0][..., tokens:, :].clone(), cache=cache)


DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def has_blocks(x: Any) -> bool:
    """Whether a cache has a block."""
    return bool(x["cache"].blocks)
