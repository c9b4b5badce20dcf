"""What whole compressors refuse."""

from typing import Any

import torch

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.draw import NAN, NEGATIVE, Refusal, bad_mask, integers, longer

__all__ = ["REFUSALS"]

generator = torch.Generator().manual_seed(11)
keys, values = torch.randn(2, 2, 3, 2, 8, 4, generator=generator)
scores = torch.rand(2, 3, 2, 8, generator=generator)
protected = torch.arange(8).expand(scores.shape) < 1
scored = Scored(scores, protected)
valid = torch.arange(8) >= torch.tensor([0, 2, 4])[:, None]
padded = Scored(scores, protected & valid[:, None])
graph = GraphSettings(count=2, kind="qk")
config = HexConfig(block=4, density=0.0)


def gap(mask: torch.Tensor) -> torch.Tensor:
    """Return the mask with a hole behind the first real token."""
    return mask.clone().index_fill_(-1, torch.tensor([6]), False)


def bad_settings(good: Any = None) -> list[Refusal]:
    """Refusals of the settings of a refinement."""
    hub, spots = HubSettings(), NmsSettings()
    graphs = GraphSettings(count=2)
    wrong: list[tuple[Any, type[Exception], str]] = [
        (hub._replace(gamma=1.0), ValueError, "gamma must be in (0, 1)"),
        (hub._replace(radius=-1), ValueError, "radius must be >= 0"),
        (hub._replace(tau=-1.0), ValueError, "tau must be >= 0"),
        (hub._replace(minimum=0.0), ValueError, "minimum must be finite and > 0"),
        (hub._replace(maximum=0.5), ValueError, "maximum must be >= minimum"),
        (hub._replace(power=0.0), ValueError, "power must be > 0"),
        (hub._replace(epsilon=-1.0), ValueError, "epsilon must be >= 0"),
        (spots._replace(radius=0.5), TypeError, "radius must be an integer"),
        (spots._replace(factor=2.0), ValueError, "factor must be in [0, 1]"),
        (graphs._replace(count=-1), ValueError, "count must be >= 0"),
        (graphs._replace(kind="q"), ValueError, "kind must be one of 'kk'"),
        (graphs._replace(fraction=0.0), ValueError, "fraction must be in (0, 1]"),
        (graphs._replace(rounds=-1), ValueError, "rounds must be >= 0"),
        (graphs._replace(strength=2.0), ValueError, "strength must be in (0, 1]"),
        (graphs._replace(rule="mean"), ValueError, "rule must be one of 'product'"),
        (graphs._replace(signal="no"), ValueError, "signal must be one of 'decay'"),
    ]
    if good is None:
        says = "HubSettings or a GraphSettings or a NmsSettings or None"
        return [Refusal("refinement", "hubkv", TypeError, says)] + [
            Refusal("refinement", value, error, text) for value, error, text in wrong
        ]
    kind = type(good)
    return [Refusal("refinement", None, TypeError, kind.__name__)] + [
        Refusal("refinement", value, error, text)
        for value, error, text in wrong
        if isinstance(value, kind)
    ]


bad_cache = [
    Refusal("keys", integers, TypeError, "floating-point"),
    Refusal("values", integers, TypeError, "floating-point"),
    Refusal("values", longer, ValueError, "shape"),
    Refusal("scored", 3, TypeError, "Scored"),
]
bad_budget = [
    Refusal("keep", None, ValueError, "exactly one"),
    Refusal("keep", -1, ValueError, "in [0, "),
    Refusal("keep", 2.0, TypeError, "integer"),
    Refusal("ratio", 0.5, ValueError, "exactly one"),
    Refusal("ratio", 1.5, ValueError, "[0, 1]"),
]
bad_padding = [
    *bad_mask("valid"),
    Refusal("valid", gap, ValueError, "false on the left of a row only"),
]
bad_scores = [
    Refusal("scored", lambda s: s._replace(scores=NEGATIVE(s.scores)), ValueError, ">= 0"),
    Refusal("scored", lambda s: s._replace(scores=NAN(s.scores)), ValueError, "finite"),
    Refusal("scored", lambda s: s._replace(scores=longer(s.scores)), ValueError, "shape"),
    Refusal("scored", lambda s: s._replace(protected=longer(s.protected)), ValueError, "shape"),
]
bad_graph = [
    Refusal("keys", NAN, ValueError, "keys must be finite"),
    Refusal("queries", NAN, ValueError, "queries must be finite"),
    Refusal("queries", None, ValueError, "must be given where refinement.kind is 'qk'"),
    Refusal("queries", lambda q: q[..., :1, :, :], ValueError, "multiple of the 2 heads"),
    Refusal("queries", longer, ValueError, "shape"),
]
bad_store = [
    Refusal("store", 3, TypeError, "HexConfig"),
    Refusal("store", config._replace(bits=9), ValueError, "bits must be in [1, 8]"),
    Refusal("store", config._replace(mode="full"), ValueError, "mode 'append'"),
]

whole = dict(keys=keys, values=values, scored=padded, keep=6, ratio=None, valid=valid)
pools = [
    *bad_cache,
    *bad_scores,
    *bad_budget,
    *bad_padding,
    Refusal("keep", 33, ValueError, "[0, 32]"),
    Refusal("scope", "token", ValueError, "'head', 'layer', 'model'"),
]
hubs = [
    *pools,
    *bad_settings(HubSettings()),
    Refusal("sinks", -1, ValueError, ">= 0"),
    Refusal("recent", -1, ValueError, ">= 0"),
    Refusal("recent", 1.0, TypeError, "integer"),
]
layers = [
    *bad_cache,
    *bad_scores,
    *bad_budget,
    *bad_padding,
    *bad_settings(graph),
    *bad_graph,
    Refusal("keep", 9, ValueError, "[0, 8]"),
    Refusal("keep", torch.tensor([3]), ValueError, "shape"),
    Refusal("length", -1, ValueError, ">= 0"),
    Refusal("length", 2.5, TypeError, "integer"),
]
chosen = whole | dict(scope="model", refinement=graph, queries=keys)
marked = [
    *pools,
    *bad_settings(),
    *bad_graph,
    Refusal("keep", torch.tensor([3, 4, 4]), ValueError, "the 4 protected"),
]
hubbed = whole | dict(scope="model", refinement=HubSettings(), sinks=1, recent=0)
layered = dict(
    keys=keys,
    values=values,
    scored=scored,
    refinement=graph,
    keep=3,
    ratio=None,
    length=8,
    queries=keys,
    valid=valid.expand(2, 3, 8),
)
stored = dict(store=None)

REFUSALS = dict(
    refine=(
        dict(
            scored=scored,
            refinement=graph,
            keep=3,
            ratio=None,
            keys=keys,
            values=values,
            queries=keys,
        ),
        [
            *bad_scores,
            *bad_settings(),
            *bad_graph,
            Refusal("scored", 3, TypeError, "Scored"),
            Refusal("keep", -1, ValueError, ">= 0"),
            Refusal("keep", 2.0, TypeError, "integer"),
            Refusal("ratio", 1.5, ValueError, "[0, 1]"),
            Refusal("keys", None, ValueError, "must be given"),
            Refusal("keys", lambda k: k[..., 1:, :], ValueError, "shape"),
            Refusal("values", longer, ValueError, "shape"),
        ],
    ),
    select=(chosen, marked),
    compress=(chosen | stored, [*marked, *bad_store]),
    hubkv_select=(hubbed, hubs),
    hubkv_compress=(hubbed | stored, [*hubs, *bad_store]),
    graphkv_select=(layered, layers),
    graphkv_compress=(layered | stored, [*layers, *bad_store]),
)
