"""Inputs of the HEX cache: blocks, streams, sizes, settings."""

import torch
from hypothesis import strategies as st

import reference
from reference import HexConfig
from spec_tests.draw import booleans
from spec_tests.inputs.hexcache_refusals import BLOCK, KV_HEADS, REFUSALS, WIDTH
from spec_tests.inputs.kcvt import batches, on_codes, value_groups, values_on_codes, widths

__all__ = ["INPUTS", "REFUSALS"]


@st.composite
def spans(draw):
    """A cache on exact codes, and masks of every density."""
    batch, kv_heads = draw(batches), draw(st.integers(1, 2))
    tokens, width = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    expander = draw(st.booleans() | st.just(booleans(tokens, kv_heads * width)))
    if isinstance(expander, bool):
        expander = torch.full((tokens, kv_heads * width), expander)
    else:
        expander = draw(expander)
    dynamic = draw(booleans(*batch, tokens))
    kept = reference.hex_mask(expander, dynamic, kv_heads)
    bits, group = draw(widths), draw(value_groups)
    return dict(
        keys=draw(on_codes(kept.mT, bits)).mT.contiguous(),
        values=draw(values_on_codes(kept, bits, group)),
        expander=expander,
        dynamic=dynamic,
        bits=bits,
        value_group=group,
        scales=draw(st.sampled_from([None, torch.float32])),
    )


@st.composite
def masks(draw):
    """Any two masks."""
    span = draw(spans())
    kv_heads = span["keys"].shape[-3]
    return dict(expander=span["expander"], dynamic=span["dynamic"], kv_heads=kv_heads)


@st.composite
def blocks(draw):
    """A block, and the mask it was made with."""
    span = draw(spans())
    return dict(block=reference.hex_compress(**span), expander=span["expander"])


@st.composite
def configs(draw, modes=("append", "full", "oracle"), **fixed):
    """Settings for small streams; the expander has degree 4."""
    drawn = HexConfig(
        bits=draw(widths),
        density=draw(st.sampled_from([0.0, 0.5, 1.0])),
        heavy=draw(st.sampled_from([0.0, 0.125])),
        recent=draw(st.sampled_from([0, 3])),
        block=BLOCK,
        mode=draw(st.sampled_from(modes)),
        period=draw(st.integers(1, 2)),
        value_group=draw(value_groups),
        scales=draw(st.sampled_from([None, torch.float32])),
        normalize=draw(st.booleans()),
        outside_recent=draw(st.booleans()),
        recent_per_block=draw(st.booleans()),
        carry_recent=draw(st.booleans()),
    )
    return drawn._replace(**fixed)


@st.composite
def streams(draw, tokens, batch=((), (2,), (), (2,), (0,))):
    """Queries, keys and values with one heavy hitter a block, which nothing comes near.

    It is among the first two tokens of its block, so that its mass exceeds the first token's.
    """
    shape = draw(st.sampled_from(batch))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    group = draw(st.integers(1, 2))
    noise = torch.randn(*shape, KV_HEADS * (2 + group), tokens, WIDTH, generator=generator)
    keys, values, queries = noise.split([KV_HEADS, KV_HEADS, KV_HEADS * group], -3)
    keys, queries = keys / 4, 6 + queries / 4
    for start in range(0, tokens, BLOCK):
        heavy = start + draw(st.integers(0, 1))
        keys[..., heavy : heavy + 1, :] += 2
    return queries, keys.clone(), values.clone()


@st.composite
def prefill(draw):
    """A prompt of up to three blocks and a part."""
    queries, keys, values = draw(streams(draw(st.integers(0, 3 * BLOCK + 5))))
    return dict(queries=queries, keys=keys, values=values, config=draw(configs()))


@st.composite
def caches(draw, modes=("append", "full", "oracle")):
    """A cache that has seen a prompt and some decoding."""
    prompt, decoded = draw(st.integers(0, 2 * BLOCK + 5)), draw(st.integers(0, BLOCK))
    stream = draw(streams(prompt + decoded))
    cache = reference.hex_prefill(
        *(x[..., :prompt, :] for x in stream), config=draw(configs(modes))
    )
    return reference.hex_append(cache, *(x[..., prompt:, :] for x in stream))


@st.composite
def append(draw):
    """A cache and what comes next, up to two blocks at once."""
    prompt, decoded = draw(st.integers(0, 2 * BLOCK + 5)), draw(st.integers(0, 2 * BLOCK))
    stream = draw(streams(prompt + decoded))
    queries, keys, values = (x[..., prompt:, :].clone() for x in stream)
    cache = reference.hex_prefill(*(x[..., :prompt, :] for x in stream), config=draw(configs()))
    return dict(cache=cache, queries=queries, keys=keys, values=values)


@st.composite
def study(draw):
    """Streams through settings that store everything exactly: rounding has nothing to magnify."""
    queries, keys, values = draw(streams(draw(st.integers(1, 2 * BLOCK)), batch=((), (2,))))
    kept = st.sampled_from([{"density": 1.0}, {"heavy": 1.0}, {"recent": 2 * BLOCK}])
    settings = draw(st.lists(st.tuples(configs(), kept), max_size=2))
    plain = dict(carry_recent=False, recent_per_block=True, outside_recent=False)
    return dict(
        queries=queries,
        keys=keys,
        values=values,
        prompt=draw(st.integers(0, keys.shape[-2] - 1)),
        configs=tuple(config._replace(**plain, **extra) for config, extra in settings),
    )


INPUTS = dict(
    hex_preset=st.fixed_dictionaries(dict(name=st.sampled_from(["HEX-3", "Table4-4-H2O-EO"]))),
    hex_mask=masks(),
    hex_compress=spans(),
    hex_reconstruct=blocks(),
    hex_prefill=prefill(),
    hex_append=append(),
    hex_recompress=st.fixed_dictionaries(dict(cache=caches(("full", "oracle")))),
    hex_read=st.fixed_dictionaries(dict(cache=caches())),
    hex_bytes=st.fixed_dictionaries(dict(cache=caches())),
    hex_size=st.fixed_dictionaries(
        dict(
            config=configs(),
            tokens=st.integers(0, 60),
            kv_heads=st.integers(1, 3),
            width=st.integers(1, 5),
            dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64]),
        )
    ),
    paper_size=st.fixed_dictionaries(
        dict(
            prompts=st.lists(st.integers(1, 6000), min_size=1, max_size=3).map(tuple),
            kv_heads=st.integers(1, 8),
            width=st.integers(1, 128),
        )
    ),
    sensitivity=study(),
)
