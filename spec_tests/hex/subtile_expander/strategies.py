"""Strategies for codes and permutations."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.hex.random_biregular.strategies import seeds
from spec_tests.strategies import Refusal, always

widths = st.sampled_from([2, 4, 8, 16])


@st.composite
def drawn_codes(draw):
    """Inputs of `subtile_codes`."""
    width = draw(widths)
    subtile = draw(st.sampled_from([size for size in (1, 2, 4) if size <= width]))
    return dict(
        tokens=subtile * draw(st.integers(0, 3)),
        heads=draw(st.integers(0, 3)),
        seed=draw(seeds),
        draw=draw(st.integers(0, 3)),
        width=width,
        subtile=subtile,
    )


@st.composite
def codes(draw):
    """Any four bytes with odd multipliers."""
    shape = draw(st.sampled_from([(), (3,), (2, 2), (0, 2)]))
    count = torch.Size(shape).numel()
    raw = draw(st.lists(st.integers(0, 2**32 - 1), min_size=count, max_size=count))
    drawn = torch.tensor(raw, dtype=torch.int64).reshape(shape) | 0x10001
    return dict(codes=drawn, width=draw(st.sampled_from([2, 8, 128, 256])))


@st.composite
def permutations(draw):
    """Any permutations, including those without a code."""
    width = draw(st.sampled_from([2, 4, 8, 256]))
    shape = (draw(st.integers(0, 3)), draw(st.integers(0, 3)), width)
    keys = np.random.RandomState(draw(seeds)).random_sample(shape)
    divisors = [size for size in (1, 2, 4) if size <= width]
    return dict(
        permutations=torch.from_numpy(keys.argsort(-1)), subtile=draw(st.sampled_from(divisors))
    )


@st.composite
def expander(draw):
    """Inputs of `subtile_expander`."""
    return dict(
        tokens=4 * draw(st.integers(3, 5)),
        heads=draw(st.integers(2, 3)),
        seed=draw(seeds),
        width=draw(st.sampled_from([8, 16])),
        subtile=4,
    )


INPUTS = dict(
    subtile_codes=drawn_codes(),
    subtile_permutations=codes(),
    subtile_mask=permutations(),
    subtile_expander=expander(),
)

DRAWN = dict.fromkeys(("subtile_codes", "subtile_expander"), always)

# a seed whose first graph is not Ramanujan
CORNERS = dict(subtile_expander=[dict(tokens=12, heads=3, seed=1, width=4, subtile=4)])

no_power = Refusal("width", 24, ValueError, "a power of two")
bad_subtile = [
    Refusal("subtile", 3, ValueError, "a power of two"),
    Refusal("subtile", 16, ValueError, "in [1, 8]"),
]

REFUSALS = dict(
    subtile_codes=(
        dict(tokens=8, heads=2, seed=0, draw=0, width=8, subtile=4),
        [no_power, *bad_subtile, Refusal("tokens", 7, ValueError, "multiple of subtile = 4")],
    ),
    subtile_permutations=(
        dict(codes=torch.tensor([0x10001, 0x30305]), width=8),
        [
            no_power,
            Refusal("codes", lambda codes: codes + 1, ValueError, "odd"),
            Refusal("codes", lambda codes: codes + 0x10000, ValueError, "odd"),
            Refusal("codes", lambda codes: codes + 2**32, ValueError, "2**32"),
            Refusal("codes", lambda codes: codes - 2**32, ValueError, "2**32"),
        ],
    ),
    subtile_mask=(
        dict(permutations=torch.arange(8).repeat(2, 3, 1), subtile=4),
        [
            Refusal("permutations", lambda p: p + 1, ValueError, "permutations along the last"),
            Refusal(
                "permutations", lambda p: p[..., :0], ValueError, "permutations along the last"
            ),
            Refusal("subtile", 3, ValueError, "divide width = 8"),
        ],
    ),
    subtile_expander=(
        dict(tokens=12, heads=2, seed=0, width=8, subtile=4),
        [
            no_power,
            *bad_subtile,
            Refusal("tokens", 8, ValueError, ">= 12"),
            Refusal("tokens", 14, ValueError, "multiple of subtile = 4"),
            Refusal("heads", 1, ValueError, ">= 2"),
        ],
    ),
)
