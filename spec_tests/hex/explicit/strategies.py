"""Inputs: one pair of primes of each kind."""

from hypothesis import strategies as st

from spec_tests.strategies import Refusal, always

INPUTS = dict(
    # the smallest graph of each kind in the theorem
    lps_mask=st.just(dict(prime=5, modulus=13)),
    lps_graph=st.just(dict(prime=17, modulus=13)),
)


# the order of the vertices is arbitrary
DRAWN = dict.fromkeys(("lps_mask", "lps_graph"), always)


def bad_primes(square: bool) -> list[Refusal]:
    """Refusals of primes outside Lubotzky, Phillips and Sarnak's theorem."""
    return [
        Refusal("prime", 7, ValueError, "prime of the form 4k + 1"),
        Refusal("prime", 9, ValueError, "prime of the form 4k + 1"),
        Refusal("prime", 5 if square else 17, ValueError, "square modulo 13"),
        Refusal("modulus", 15, ValueError, "prime of the form 4k + 1"),
        Refusal("modulus", 17 if square else 5, ValueError, "another prime"),
        Refusal("prime", 53 if square else 89, ValueError, "modulus must be another"),
    ]


REFUSALS = dict(
    lps_mask=(dict(prime=5, modulus=13), bad_primes(square=False)),
    lps_graph=(dict(prime=17, modulus=13), bad_primes(square=True)),
)
