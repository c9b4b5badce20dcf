"""GraphKV: one layer of 8 heads, 8192 tokens wide, 153 sources as for a budget of 512."""

from typing import Any

import torch
from torch import Tensor

import reference
from optimized.bench.timing_harness import Case, compare, normal, timing_test

TOKENS, SOURCES, COUNT, KEEP = 8192, 153, 64, 512
LAYER = f"[8, {TOKENS}, 128] float32"
GRAPH = f"[{SOURCES}, {TOKENS}] float32"
FEW = "[4, 256, 128] float32"


def uniform(*shape: int) -> Tensor:
    """Return uniform numbers in [0, 1)."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def sources(*heads: int) -> Tensor:
    """Return positions spread over the tokens."""
    return torch.arange(SOURCES).mul(TOKENS // SOURCES).expand(*heads, SOURCES)


def layer() -> dict[str, Any]:
    """Return scores and keys of a layer, a few tokens of them protected."""
    protected = torch.arange(TOKENS) < 4
    return dict(
        scores=uniform(8, TOKENS),
        keys=normal(1, 8, TOKENS, 128),
        keep=KEEP,
        count=COUNT,
        protected=protected.expand(8, TOKENS),
    )


def graph() -> dict[str, Any]:
    """Return scores, edges and neighbours of one graph."""
    weights = uniform(SOURCES, TOKENS)
    reached = reference.neighbours(weights, sources(), COUNT)
    return dict(scores=uniform(TOKENS), weights=weights, neighbours=reached)


def banished() -> dict[str, Any]:
    """Return a graph without its edges."""
    return {name: value for name, value in graph().items() if name != "weights"}


def refining(what: str, **choices: Any) -> Case:
    """Return a row of the whole refinement with some settings."""
    return compare("graphkv_refine", LAYER + what, lambda: layer() | choices)


ROWS = [
    refining(""),
    refining(", three rounds", rounds=3),
    refining(", per head", per_head=True),
    refining(", per head, window excluded", per_head=True, exclude_window=True),
    compare("source_tokens", "[8, 8192] float32", lambda: dict(scores=uniform(8, 8192), count=153)),
    compare("edges", LAYER, lambda: dict(keys=normal(1, 8, TOKENS, 128), sources=sources(8))),
    compare("neighbours", GRAPH, lambda: dict(weights=uniform(SOURCES, TOKENS), sources=sources())
           | dict(count=COUNT)),
    *(compare("decay", f"{GRAPH}, {rule}", lambda rule=rule: graph() | dict(rule=rule))
      for rule in ("product", "sequential", "sum")),
    compare("decay", f"{GRAPH}, three rounds", lambda: graph() | dict(rounds=3)),
    compare("enhance", GRAPH, graph),
    compare("banish", GRAPH, banished),
    compare("cosine_matrix", FEW, lambda: dict(keys=normal(1, 4, 256, 128))),
    compare("cosine_distribution", FEW, lambda: dict(keys=normal(1, 4, 256, 128))),
    compare("principal_components", FEW, lambda: dict(keys=normal(1, 4, 256, 128))),
]  # fmt: skip

test_timing = timing_test(ROWS)
