"""Strategies for compression while decoding: settings, streams, caches after some tokens."""

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

import reference
from reference import DecodingConfig, GraphSettings, HubSettings
from spec_tests.compress.strategies import valid, with_hole
from spec_tests.from_signature import draw_choices
from spec_tests.refinement import strategies as refining
from spec_tests.refinement.strategies import CROWDED, WIDTH, either, keys, scores, values, vectors
from spec_tests.strategies import INFINITE, NAN, NEGATIVE, Refusal, importance, longer

INTERVAL = 3
"""The longest interval; streams are short, and some contain two intervals."""


@st.composite
def configs(draw, scopes=("head", "layer", "model"), refinements=None):
    """Settings with small targets, and sinks that fit into them."""
    scope, target = draw(st.sampled_from(scopes)), draw(st.sampled_from([3, 2, 4, 1, 5]))
    if refinements is None:
        graphs = refining.graph_settings(
            per_head=either if scope == "head" else st.just(True),
            window=either if scope == "head" else refining.never,
        )
        refinements = st.none() | refining.hub_settings | refining.nms_settings | graphs
    return DecodingConfig(
        target=target,
        interval=draw(st.sampled_from([INTERVAL, 2, INTERVAL, 1])),
        scope=scope,
        refinement=draw(refinements),
        ratio=draw(st.sampled_from([None, None, 0.0, 0.9])),
        sinks=draw(st.integers(0, min(2, target))),
        recent=draw(st.none() | st.integers(0, 3)),
        **draw(draw_choices(DecodingConfig, "scope")),
    )


@st.composite
def streams(draw, config, tokens, lead=None, heads=None):
    """Keys, values and scores of `tokens` tokens."""
    if lead is None:
        lead = draw(refining.leading_shapes(config.scope))
    shape = (*lead, heads or draw(st.sampled_from([2, 1])), tokens)
    scores = draw(
        refining.scores_to_refine(*shape, scope=config.scope, refinement=config.refinement)
    )
    if isinstance(config.refinement, GraphSettings):
        return draw(vectors(*shape, WIDTH)), draw(vectors(*shape, WIDTH)), scores
    # every number is different, so that a token in a wrong place is detected
    keys = torch.arange(torch.Size(shape).numel() * WIDTH).view(*shape, WIDTH).float()
    return keys, -1 - keys, scores


def part(stream: Sequence[Tensor], start: int, stop: int | None = None) -> list[Tensor]:
    """Return keys, values and scores of the tokens from `start` to `stop`."""
    return [x[..., start:stop, :] for x in stream[:2]] + [stream[2][..., start:stop]]


@st.composite
def start(draw, **fixed):
    """Inputs of a prompt, with or without padding on the left."""
    config = draw(configs(**fixed))
    tokens = draw(refining.few)
    keys, values, scores = draw(streams(config, tokens))
    valid = draw(
        st.none() | refining.paddings(*refining.shape_of_rows(scores, config.scope), tokens=tokens)
    )
    return dict(keys=keys, values=values, scores=scores, config=config, valid=valid)


@st.composite
def caches(draw):
    """A cache after a prompt and some tokens, and all these tokens."""
    x = draw(start())
    lead, heads = x["scores"].shape[:-2], x["scores"].shape[-2]
    cache = reference.decoding_start(**x)
    tokens = draw(st.sampled_from([2, 4, 0, 3, 1]))
    return reference.decoding_append(cache, *draw(streams(x["config"], tokens, lead, heads)))


@st.composite
def append(draw) -> Any:
    """A cache, its next tokens, and mass for the stored scores or None."""
    cache = draw(caches())
    lead, heads = cache.pending_scores.shape[:-2], cache.pending_scores.shape[-2]
    keys, values, scores = draw(
        streams(cache.config, draw(st.sampled_from([4, 2, 3, 5, 1, 0])), lead, heads)
    )
    held = reference.decoding_read(cache).present.shape
    mass = draw(st.none() | importance(*held, close=False))
    return dict(cache=cache, keys=keys, values=values, scores=scores, mass=mass)


INPUTS = dict(decoding_start=start(), decoding_append=append(), decoding_read=dict(cache=caches()))

config = DecodingConfig(target=4, interval=3, scope="model", refinement=HubSettings(), sinks=1)
cache = reference.decoding_start(keys, values, scores, config, valid)
held = torch.ones_like(reference.decoding_read(cache).scores)
graph = GraphSettings(count=2)


crowded = CROWDED["keys"], CROWDED["values"], CROWDED["scored"].scores
names = "keys", "values", "scores"
prompt: dict[str, Any] = dict(zip(names, part(crowded, 0, 40), strict=True))
prompt |= dict(config=DecodingConfig(24, 24, "head", HubSettings(), sinks=0))
decoded = dict(zip(names, part(crowded, 40), strict=True))
CORNERS = dict(
    decoding_start=[prompt],
    decoding_append=[decoded | dict(cache=reference.decoding_start(**prompt))],
)


def other(says: str, **settings: Any) -> Refusal:
    """Return a refusal of settings that contradict each other."""
    return Refusal("config", config._replace(**settings), ValueError, says)


bad_config = [
    other("sinks must be in [0, 4]", sinks=5),
    other("kind must be one of 'kk', 'kv', 'vv'", refinement=graph._replace(kind="qk")),
    other("adaptive must be one of False", refinement=graph._replace(adaptive=True)),
    other("per_head must be one of True", refinement=graph),
    other(
        "exclude_window must be one of False",
        refinement=graph._replace(per_head=True, exclude_window=True),
    ),
]
bad_tokens = [
    Refusal("values", longer, ValueError, "shape"),
    Refusal("scores", NEGATIVE, ValueError, "finite and >= 0"),
    Refusal("scores", NAN, ValueError, "finite and >= 0"),
    Refusal("scores", INFINITE, ValueError, "finite and >= 0"),
]


def due(cache):
    """Return a cache whose number of pending tokens equals its interval."""
    pending = cache.pending_scores.shape[-1]
    return cache._replace(config=cache.config._replace(interval=pending))


REFUSALS = dict(
    decoding_start=(
        dict(keys=keys, values=values, scores=scores, config=config, valid=valid),
        [
            *bad_tokens,
            *bad_config,
            Refusal("valid", with_hole, ValueError, "false on the left of a row only"),
        ],
    ),
    decoding_append=(
        dict(cache=cache, keys=keys, values=values, scores=scores, mass=held),
        [
            *bad_tokens,
            Refusal("cache", due, ValueError, "fewer pending tokens than its interval"),
            Refusal("keys", torch.Tensor.double, TypeError, "torch.float32"),
            Refusal("values", torch.Tensor.double, TypeError, "torch.float32"),
            Refusal("mass", longer, ValueError, "shape"),
            Refusal("mass", NEGATIVE, ValueError, "finite and >= 0"),
            Refusal("mass", INFINITE, ValueError, "finite and >= 0"),
        ],
    ),
)

GOOD = dict(decoding_read=dict(cache=cache))
