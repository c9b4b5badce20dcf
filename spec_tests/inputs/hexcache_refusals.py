"""What the HEX cache refuses."""

import torch

import reference
from reference import HexConfig
from spec_tests.draw import Refusal, bad_mask
from spec_tests.inputs.kcvt_refusals import bad_bits, bad_numbers, bad_scales, bad_value_group, huge

BLOCK, KV_HEADS, WIDTH = 8, 2, 4
"""Small streams: a block has 8 tokens, a token 8 channels."""

generator = torch.Generator().manual_seed(7)
keys, values = torch.randn(2, KV_HEADS, 11, WIDTH, generator=generator)
config = HexConfig(block=BLOCK, density=0.5, recent=2, mode="full", scales=torch.float16)
expander = reference.expander_mask(11, KV_HEADS * WIDTH, 1.0, near=True)
dynamic = torch.arange(11) % 2 == 0
cache = reference.hex_prefill(keys, keys, values, config)
block = reference.hex_compress(keys, values, expander, dynamic)

bad_config = [
    Refusal("config", 3, TypeError, "HexConfig"),
    Refusal("config", config._replace(bits=9), ValueError, "bits must be in [1, 8]"),
    Refusal("config", config._replace(density=1.5), ValueError, "density must be in [0, 1]"),
    Refusal("config", config._replace(heavy=-0.1), ValueError, "heavy must be in [0, 1]"),
    Refusal("config", config._replace(recent=-1), ValueError, "recent must be >= 0"),
    Refusal("config", config._replace(block=0), ValueError, "block must be >= 1"),
    Refusal("config", config._replace(mode="all"), ValueError, "mode must be one of 'append'"),
    Refusal("config", config._replace(period=0), ValueError, "period must be >= 1"),
    Refusal("config", config._replace(value_group="row"), ValueError, "must be one of 'token'"),
    Refusal("config", config._replace(scales=torch.int8), ValueError, "scales must be one of"),
    Refusal("config", config._replace(seed=-1), ValueError, "seed must be in [0, "),
    Refusal("config", config._replace(block=8.0), TypeError, "block must be an integer"),  # pyright: ignore[reportArgumentType]
]
bad_cache = [Refusal("cache", 3, TypeError, "HexCache")]
bad_stream = [
    *bad_numbers("queries", "keys", "values"),
    Refusal("queries", lambda q: q[:, :-1], ValueError, "shape"),
    Refusal("queries", lambda q: q[:1], ValueError, "multiple of the 2"),
    Refusal("keys", huge, ValueError, "torch.float16"),
    Refusal("values", huge, ValueError, "torch.float16"),
    Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
    Refusal("values", lambda v: v[:, :-1], ValueError, "shape"),
]
bad_prompts = [
    Refusal("prompts", (), ValueError, "at least 1 length"),
    Refusal("prompts", (900, 0), ValueError, "prompts must be >= 1, got 0"),
    Refusal("prompts", (900.0,), TypeError, "integer"),
]
bad_expander = [
    Refusal("expander", lambda e: e.float(), TypeError, "boolean"),
    Refusal("expander", lambda e: torch.cat([e, e]), ValueError, "11"),
]


def size(name: str, low: int) -> list[Refusal]:
    """Refusals of a number of tokens, heads or channels."""
    return [
        Refusal(name, low - 1, ValueError, f">= {low}"),
        Refusal(name, 8.0, TypeError, "integer"),
    ]


REFUSALS = dict(
    hex_preset=(dict(name="HEX-3"), [Refusal("name", "HEX-5", ValueError, "'HEX-3', 'HEX-4'")]),
    hex_mask=(
        dict(expander=expander, dynamic=dynamic, kv_heads=2),
        [
            *bad_expander,
            Refusal("dynamic", lambda d: d.float(), TypeError, "boolean"),
            Refusal("kv_heads", 0, ValueError, ">= 1"),
            Refusal("kv_heads", 3, ValueError, "divide 8"),
            Refusal("kv_heads", 2.0, TypeError, "integer"),
        ],
    ),
    hex_compress=(
        dict(keys=keys, values=values, expander=expander, dynamic=dynamic & False, bits=3,
             value_group="token", scales=torch.float16),
        [
            *bad_numbers("keys", "values"),
            Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
            *bad_expander,
            *bad_mask("dynamic"),
            *bad_bits,
            *bad_value_group,
            *bad_scales,
        ],
    ),
    hex_reconstruct=(
        dict(block=block, expander=expander),
        [
            Refusal("block", 3, TypeError, "HexBlock"),
            *bad_expander,
            Refusal("expander", lambda e: ~e, ValueError, "entries stored"),
        ],
    ),
    hex_prefill=(
        dict(queries=keys, keys=keys, values=values, config=config),
        [*bad_stream, *bad_config],
    ),
    hex_append=(
        dict(cache=cache, queries=keys, keys=keys, values=values),
        [
            *bad_cache,
            *bad_stream,
        ],
    ),
    hex_recompress=(dict(cache=cache), bad_cache),
    hex_read=(dict(cache=cache), bad_cache),
    hex_bytes=(dict(cache=cache), bad_cache),
    hex_size=(
        dict(config=config, tokens=16, kv_heads=2, width=4, dtype=torch.float16),
        [
            *bad_config,
            *size("tokens", 0),
            *size("kv_heads", 1),
            *size("width", 1),
            Refusal("dtype", torch.int8, ValueError, "torch.bfloat16"),
        ],
    ),
    paper_size=(
        dict(prompts=(900, 1304), kv_heads=2, width=4),
        [*bad_prompts, *size("kv_heads", 1), *size("width", 1)],
    ),
    sensitivity=(
        dict(queries=keys, keys=keys, values=values, prompt=8, configs=(config,)),
        [
            *bad_stream,
            Refusal("prompt", -1, ValueError, "[0, 10]"),
            Refusal("prompt", 11, ValueError, "[0, 10]"),
            Refusal("prompt", 2.0, TypeError, "integer"),
            *[
                Refusal("configs", (bad.change,), bad.error, bad.says)
                for bad in bad_config
            ],
        ],
    ),
)  # fmt: skip
