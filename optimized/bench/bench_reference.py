"""Whole caches and random graphs, compared with the literal code of the reference.

These functions have no plain way: `optimized.bench.straightforward.WITHOUT`. Of every other one,
`python -m optimized.bench straightforward` has a row against the reference.
"""

from functools import partial
from typing import Any

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs, normal, reference_case

ALSO = ("hex_mask", "half_edge_pairing", "double_edge_swaps", "connecting_swaps")
KV_HEADS, QUERY_HEADS, WIDTH, TOKENS, KEEP = 8, 32, 128, 960, 256
LAYER = f"[{KV_HEADS}, {TOKENS}, {WIDTH}] float32"
HEX = kv.hex_preset("HEX-3")


def layer(tokens: int = TOKENS) -> Inputs:
    """Return the keys and values of a layer."""
    shape = KV_HEADS, tokens, WIDTH
    return dict(keys=normal(1, *shape), values=normal(2, *shape))


def prompt() -> Inputs:
    """Return the arguments of HEX's prefill."""
    return layer() | dict(queries=normal(0, QUERY_HEADS, TOKENS, WIDTH), config=HEX)


def hex_decoded(tokens: int) -> Inputs:
    """Return HEX's cache of a prompt, and the tokens that come next."""
    new = layer(tokens) | dict(queries=normal(0, QUERY_HEADS, tokens, WIDTH))
    return dict(cache=kv.hex_prefill(**prompt())) | new


def decoding(scope: str) -> Inputs:
    """Return a prompt and the settings of its compression."""
    config = kv.DecodingConfig(KEEP, scope=scope)  # pyright: ignore[reportArgumentType]
    return layer() | dict(scores=normal(2, KV_HEADS, TOKENS).abs(), config=config)


def decoded(scope: str, tokens: int) -> Inputs:
    """Return the compressed cache of a prompt, and new tokens."""
    cache = kv.decoding_start(**decoding(scope))
    return dict(cache=cache, **layer(tokens), scores=normal(3, KV_HEADS, tokens).abs())


def whole(name: str, what: str, inputs: Any, **settings: Any) -> Case:
    """Return the case of a function at the shape of the layer."""
    return reference_case(name, f"{LAYER}{what}", partial(inputs, **settings))


CASES = [
    *(
        case
        for scope in ("head", "layer")
        for case in (
            whole("decoding_start", f", scope {scope}", decoding, scope=scope),
            whole("decoding_append", f", 128 tokens, scope {scope}", decoded, scope=scope,
                  tokens=128),
        )
    ),
    whole("hex_prefill", "", prompt),
    whole("hex_append", ", one token", hex_decoded, tokens=1),
    whole("hex_append", ", 96 tokens", hex_decoded, tokens=96),
    reference_case("kivi_prefill", f"[{KV_HEADS}, 96, {WIDTH}] float32", partial(layer, 96)),
    whole("kivi_append", ", 32 tokens", lambda: dict(cache=kv.kivi_prefill(**layer())) | layer(32)),
    whole("kivi_read", "", lambda: dict(cache=kv.kivi_prefill(**layer()))),
    whole("gear_prefill", "", layer),
    whole("gear_append", ", 20 tokens", lambda: dict(cache=kv.gear_prefill(**layer())) | layer(20)),
    whole("gear_read", "", lambda: dict(cache=kv.gear_prefill(**layer()))),
    reference_case("random_expander", "96 × 1024, by loops",
                   lambda: dict(tokens=96, channels=1024, token_degree=32)),
]  # fmt: skip
