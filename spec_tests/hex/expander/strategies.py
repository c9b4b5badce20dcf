"""Strategies for sizes, degrees and densities."""

from hypothesis import strategies as st

from spec_tests.hex.random_biregular.strategies import draw_graph_sizes, seeds
from spec_tests.strategies import Refusal, always


@st.composite
def biregular(draw):
    """Tokens, channels and a token degree, where both degrees are at least 3."""
    tall, wide = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    parts = draw(st.integers(3, 8))
    steps = draw(st.integers(-(-3 // min(tall, wide)), parts))
    return dict(tokens=parts * tall, channels=parts * wide, token_degree=steps * wide)


@st.composite
def random_graph(draw):
    """Inputs of `random_expander`."""
    near = draw(st.booleans())
    sizes = draw(draw_graph_sizes() if near else biregular())
    return dict(**sizes, seed=draw(seeds), near=near)


@st.composite
def expander(draw):
    """Inputs of `expander_mask`: feasible, near and tiled."""
    near = draw(st.booleans())
    sizes = draw(draw_graph_sizes() if near else biregular())
    degree, tokens = sizes.pop("token_degree"), sizes["tokens"]
    tiles = draw(st.sampled_from([0, 1, 3]))
    return dict(
        tokens=tokens * max(tiles, 1),
        channels=sizes["channels"],
        density=degree / sizes["channels"],
        seed=draw(seeds),
        near=near,
        tile=tiles > 0,
        block=tokens,
    )


@st.composite
def degrees(draw):
    """Inputs of `biregular_degrees`."""
    x = draw(expander())
    return {k: x[k] for k in ("tokens", "channels", "density", "near")} | (
        dict(tokens=x["block"]) if x["tile"] else {}
    )


@st.composite
def sizes_and_any_density(draw):
    """Sizes and any density."""
    sizes = draw(draw_graph_sizes())
    return dict(
        tokens=sizes["tokens"], channels=sizes["channels"], density=draw(st.integers(0, 64)) / 64
    )


INPUTS = dict(
    biregular_degrees=degrees() | sizes_and_any_density().map(lambda x: x | dict(near=True)),
    random_expander=random_graph(),
    expander_mask=expander(),
)

DRAWN = dict.fromkeys(("random_expander", "expander_mask"), always)

# two channels and a half; a seed whose first graph is not Ramanujan
CORNERS = dict(
    biregular_degrees=[dict(tokens=96, channels=8, density=0.3125, near=True)],
    random_expander=[dict(tokens=24, channels=24, token_degree=3, seed=3, near=False)],
)

infeasible = Refusal("density", 0.3, ValueError, "nearest feasible: 0.25 and 0.5")

REFUSALS = dict(
    biregular_degrees=(
        dict(tokens=12, channels=16, density=0.25, near=False),
        [infeasible, Refusal("density", 0.0, ValueError, "at least 3")],
    ),
    random_expander=(
        dict(tokens=12, channels=12, token_degree=4, seed=0, near=False),
        [
            Refusal("token_degree", 2, ValueError, "in [3, 12]"),
            Refusal("token_degree", 13, ValueError, "in [3, 12]"),
            Refusal("channels", 5, ValueError, "whole degree"),
            Refusal("tokens", 7, ValueError, "whole degree"),
        ],
    ),
    expander_mask=(
        dict(tokens=12, channels=16, density=0.25, seed=0, near=False, tile=True, block=12),
        [infeasible, Refusal("tokens", 13, ValueError, "multiple of block = 12")],
    ),
)
