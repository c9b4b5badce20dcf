"""What compression while decoding refuses."""

import torch

import reference
from reference import DecodingConfig, GraphSettings, HubSettings
from spec_tests.draw import (
    INFINITE,
    NAN,
    NEGATIVE,
    Refusal,
    bad_mask,
    integers,
    longer,
)
from spec_tests.inputs.compress_refusals import gap

__all__ = ["REFUSALS"]

generator = torch.Generator().manual_seed(13)
keys, values = torch.randn(2, 2, 3, 2, 8, 4, generator=generator)
scores = torch.rand(2, 3, 2, 8, generator=generator)
valid = torch.arange(8) >= torch.tensor([0, 2, 4])[:, None]
config = DecodingConfig(target=4, interval=3, scope="model", refinement=HubSettings(), sinks=1)
cache = reference.decoding_start(keys, values, scores, config, valid)
held = torch.ones_like(reference.decoding_read(cache).scores)
graph = GraphSettings(count=2)

bad_config = [
    Refusal("config", 3, TypeError, "DecodingConfig"),
    Refusal("config", config._replace(target=0), ValueError, "target must be >= 1"),
    Refusal("config", config._replace(target=4.0), TypeError, "target must be an integer"),  # pyright: ignore[reportArgumentType]
    Refusal("config", config._replace(interval=0), ValueError, "interval must be >= 1"),
    Refusal("config", config._replace(scope="row"), ValueError, "scope must be one of 'head'"),
    Refusal(
        "config",
        config._replace(refinement=3),
        TypeError,
        "refinement must be a HubSettings or a GraphSettings",
    ),  # pyright: ignore[reportArgumentType]
    Refusal(
        "config",
        config._replace(refinement=graph._replace(kind="qk")),
        ValueError,
        "refinement.kind must be one of 'kk', 'kv', 'vv'",
    ),
    Refusal(
        "config",
        config._replace(refinement=graph._replace(adaptive=True)),
        ValueError,
        "refinement.adaptive must be one of False",
    ),
    Refusal(
        "config", config._replace(refinement=graph), ValueError, "per_head must be one of True"
    ),
    Refusal(
        "config",
        config._replace(refinement=graph._replace(per_head=True, exclude_window=True)),
        ValueError,
        "exclude_window must be one of False",
    ),
    Refusal("config", config._replace(ratio=2.0), ValueError, "ratio must be in [0, 1]"),
    Refusal("config", config._replace(sinks=5), ValueError, "sinks must be in [0, 4]"),
    Refusal("config", config._replace(recent=-1), ValueError, "recent must be >= 0"),
    Refusal(
        "config", config._replace(length="text"), ValueError, "length must be one of 'seen', 'held'"
    ),
]
bad_tokens = [
    Refusal("keys", integers, TypeError, "floating-point"),
    Refusal("values", integers, TypeError, "floating-point"),
    Refusal("values", longer, ValueError, "shape"),
    Refusal("scores", integers, TypeError, "floating-point"),
    Refusal("scores", NEGATIVE, ValueError, "finite and >= 0"),
    Refusal("scores", NAN, ValueError, "finite and >= 0"),
    Refusal("scores", INFINITE, ValueError, "finite and >= 0"),
    Refusal("scores", longer, ValueError, "shape"),
]

REFUSALS = dict(
    decoding_start=(
        dict(keys=keys, values=values, scores=scores, config=config, valid=valid),
        [*bad_tokens, *bad_config, *bad_mask("valid"),
         Refusal("valid", gap, ValueError, "false on the left of a row only")],
    ),
    decoding_append=(
        dict(cache=cache, keys=keys, values=values, scores=scores, mass=held),
        [
            Refusal("cache", 3, TypeError, "DecodingCache"),
            *bad_tokens,
            Refusal("keys", lambda k: k.double(), TypeError, "torch.float32"),
            Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
            Refusal("mass", integers, TypeError, "floating-point"),
            Refusal("mass", longer, ValueError, "shape"),
            Refusal("mass", NEGATIVE, ValueError, "finite and >= 0"),
            Refusal("mass", INFINITE, ValueError, "finite and >= 0"),
        ],
    ),
    decoding_read=(dict(cache=cache), [Refusal("cache", 3, TypeError, "DecodingCache")]),
)  # fmt: skip
