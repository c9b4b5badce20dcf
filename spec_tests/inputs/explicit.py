"""Inputs of HEX's sub-tile family and of its explicit graphs."""

import numpy as np
import torch
from hypothesis import strategies as st

from spec_tests.draw import Refusal
from spec_tests.inputs.expander import seeds

widths = st.sampled_from([2, 4, 8, 16])


@st.composite
def drawn_codes(draw):
    """What `subtile_codes` takes."""
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
    """Any four bytes whose multipliers are odd."""
    shape = draw(st.sampled_from([(), (3,), (2, 2), (0, 2)]))
    count = torch.Size(shape).numel()
    raw = draw(st.lists(st.integers(0, 2**32 - 1), min_size=count, max_size=count))
    drawn = torch.tensor(raw, dtype=torch.int64).reshape(shape) | 0x10001
    return dict(codes=drawn, width=draw(st.sampled_from([2, 8, 128, 256])))


@st.composite
def permutations(draw):
    """Any permutations, those no code stands for included."""
    width = draw(widths)
    shape = (draw(st.integers(0, 3)), draw(st.integers(0, 3)), width)
    keys = np.random.RandomState(draw(seeds)).random_sample(shape)
    divisors = [size for size in (1, 2, 4) if size <= width]
    return dict(
        permutations=torch.from_numpy(keys.argsort(-1)), subtile=draw(st.sampled_from(divisors))
    )


@st.composite
def expander(draw):
    """What `subtile_expander` takes."""
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
    # the smallest graphs of the two kinds that the theorem gives
    lps_mask=st.just(dict(prime=5, modulus=13)),
    lps_graph=st.just(dict(prime=17, modulus=13)),
)

no_power = Refusal("width", 24, ValueError, "a power of two")
bad_subtile = [
    Refusal("subtile", 3, ValueError, "a power of two"),
    Refusal("subtile", 16, ValueError, "in [1, 8]"),
]


def bad_primes(square: bool) -> list[Refusal]:
    """Refusals of what Lubotzky, Phillips and Sarnak's theorem does not cover."""
    return [
        Refusal("prime", 7, ValueError, "prime of the form 4k + 1"),
        Refusal("prime", 9, ValueError, "prime of the form 4k + 1"),
        Refusal("prime", 5 if square else 17, ValueError, "square modulo 13"),
        Refusal("modulus", 15, ValueError, "prime of the form 4k + 1"),
        Refusal("modulus", 17 if square else 5, ValueError, "another prime"),
        Refusal("prime", 53 if square else 89, ValueError, "modulus must be another"),
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
            Refusal("subtile", 3, ValueError, "divide the width = 8"),
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
    lps_mask=(dict(prime=5, modulus=13), bad_primes(square=False)),
    lps_graph=(dict(prime=17, modulus=13), bad_primes(square=True)),
)
