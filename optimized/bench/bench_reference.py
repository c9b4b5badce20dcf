"""Whole scorers, refinements and caches, compared with the literal code of the reference."""

from functools import partial
from typing import Any

import torch

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs, gate, normal, reference_case

ALSO = ("select", "hex_mask", "half_edge_pairing", "double_edge_swaps", "connecting_swaps")
KV_HEADS, QUERY_HEADS, WIDTH, TOKENS, WINDOW, KEEP = 8, 32, 128, 960, 32, 256
CHUNK = TOKENS // 2
LAYER = f"[{KV_HEADS}, {TOKENS}, {WIDTH}] float32"
HEX = kv.hex_preset("HEX-3")


def layer(tokens: int = TOKENS) -> Inputs:
    """Return the keys and values of a layer."""
    shape = KV_HEADS, tokens, WIDTH
    return dict(keys=normal(1, *shape), values=normal(2, *shape))


def asked(queries: int = WINDOW) -> Inputs:
    """Return the queries and keys of a layer."""
    return dict(queries=normal(0, QUERY_HEADS, queries, WIDTH), keys=layer()["keys"])


def scored(**settings: Any) -> Inputs:
    """Return the keys, values and scores of a layer, a few tokens of which are protected."""
    protected = (torch.arange(TOKENS) < 4).expand(KV_HEADS, TOKENS)
    both = kv.Scored(normal(3, KV_HEADS, TOKENS).abs(), protected)
    return layer() | dict(scored=both, keep=KEEP) | settings


def refined(**settings: Any) -> Inputs:
    """Return uniform scores in [0, 1), with settings."""
    numbers = torch.rand(4, KV_HEADS, TOKENS, generator=torch.Generator().manual_seed(0))
    return dict(scores=numbers) | settings


def graph(**settings: Any) -> Inputs:
    """Return the scores and keys of a layer for GraphKV."""
    given = scored()["scored"]
    rest = dict(keys=layer()["keys"], keep=KEEP, count=16)
    return dict(scores=given.scores, protected=given.protected) | rest | settings


def moments() -> Inputs:
    """Return the query statistics for expected attention, and a layer."""
    statistics = kv.query_statistics(normal(0, QUERY_HEADS, TOKENS, WIDTH))
    rotation = kv.mean_rotation(torch.rand(WIDTH // 2), TOKENS, 512)
    return layer() | dict(statistics=statistics, rotation=rotation)


def repetitions() -> Inputs:
    """Return a layer, and the queries and keys of all chunks of a repetition."""
    return dict(
        queries=tuple(normal(i, QUERY_HEADS, CHUNK, WIDTH) for i in range(2)),
        keys=layer()["keys"],
        repeat_keys=tuple(normal(3 + i, KV_HEADS, CHUNK, WIDTH) for i in range(2)),
        chunk=CHUNK,
    )


def prompt() -> Inputs:
    """Return the arguments of HEX's prefill."""
    return asked(TOKENS) | layer() | dict(config=HEX)


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
    whole("snapkv", f", a window of {WINDOW}", asked),
    whole("cake", f", a window of {WINDOW}", asked),
    whole("knorm", "", lambda: dict(keys=layer()["keys"])),
    whole("h2o_mass", "", partial(asked, TOKENS)),
    whole("expected_attention", "", moments),
    whole("kvzip", f", chunks of {CHUNK}", repetitions),
    reference_case("fastkvzip", f"[{TOKENS}, 1024] float32",
                   lambda: dict(hidden=normal(5, TOKENS, 1024), weights=gate(KV_HEADS))),
    *(
        reference_case(name, f"[4, {KV_HEADS}, {TOKENS}] float32{what}",
                       partial(refined, **settings))
        for name, what, settings in (
            ("smd", "", {}),
            ("hubkv_refine", "", dict(ratio=0.95)),
            ("ungated_refine", "", {}),
            ("head_budgets", ", waterfill", dict(keep=128, rule="waterfill")),
            ("head_budgets", ", hybrid", dict(keep=128, rule="hybrid")),
        )
    ),
    whole("graphkv_refine", "", graph),
    whole("graphkv_refine", ", three rounds", graph, rounds=3),
    whole("graphkv_refine", ", per head", graph, per_head=True),
    whole("compress", "", scored),
    whole("compress", ", heads apart", scored, scope="layer"),
    whole("compress", ", stored as HEX-3", scored, scope="layer", store=HEX),
    whole("hubkv_compress", "", scored, scope="layer", refinement=kv.HubSettings()),
    whole("graphkv_compress", "", scored, refinement=kv.GraphSettings(8)),
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
    whole("hex_read", "", lambda: dict(cache=hex_decoded(0)["cache"])),
    reference_case("kivi_prefill", f"[{KV_HEADS}, 96, {WIDTH}] float32", partial(layer, 96)),
    whole("kivi_append", ", 32 tokens", lambda: dict(cache=kv.kivi_prefill(**layer())) | layer(32)),
    whole("kivi_read", "", lambda: dict(cache=kv.kivi_prefill(**layer()))),
    whole("gear_prefill", "", layer),
    whole("gear_append", ", 20 tokens", lambda: dict(cache=kv.gear_prefill(**layer())) | layer(20)),
    whole("gear_read", "", lambda: dict(cache=kv.gear_prefill(**layer()))),
    reference_case("random_expander", "96 × 1024, by loops",
                   lambda: dict(tokens=96, channels=1024, token_degree=32)),
    reference_case("is_ramanujan", "960 × 1024",
                   lambda: dict(mask=kv.expander_mask(960, 1024, 1 / 32))),
]  # fmt: skip
