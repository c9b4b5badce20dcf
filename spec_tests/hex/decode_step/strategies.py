"""Strategies for decode steps with a cache after some tokens."""

from spec_tests.hex.cache import strategies
from spec_tests.hex.cache.strategies import append
from spec_tests.strategies import needs_expander_mask


def calmer(x):
    """Return smaller queries, for logits of a few units: their rounding changes the weights."""
    return x | dict(queries=x["queries"] / 8)


INPUTS = dict(hex_decode=append().map(calmer))

EXTENDED = dict(hex_decode=append(extended=True).map(calmer))

DRAWN = dict(hex_decode=needs_expander_mask)

REFUSALS = dict(hex_decode=strategies.REFUSALS["hex_append"])
