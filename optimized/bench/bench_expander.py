"""Expander generation, sampled, checked and accepted.

The slow side is networkx's configuration model. It returns a multigraph whose repeated edges are
lost in a mask, and it does not check the spectrum. The paper claims less than 150 ms at 1024
channels and less than 3 s at 4096.
"""

import networkx

import optimized as kv
from optimized.bench.timing_harness import Case

SIZES = ((96, 1024, "< 150"), (1920, 1024, "< 150"), (8160, 1024, "< 150"), (4096, 4096, "< 3000"))


def configuration_model(tokens: int, channels: int, token_degree: int) -> networkx.MultiGraph:
    """Return the multigraph of networkx's configuration model."""
    degrees = [token_degree] * tokens, [tokens * token_degree // channels] * channels
    return networkx.bipartite.configuration_model(*degrees, seed=0)


CASES = [
    Case(
        "random_expander",
        f"{tokens} × {channels}",
        lambda tokens=tokens, channels=channels: dict(
            tokens=tokens, channels=channels, token_degree=channels // 32
        ),
        kv.random_expander,
        configuration_model,
        "networkx multigraph",
        paper,
    )
    for tokens, channels, paper in SIZES
]
