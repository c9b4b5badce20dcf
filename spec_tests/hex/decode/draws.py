"""Steps of decoding with a cache that has seen some tokens."""

from spec_tests.draw import Refusal, masked
from spec_tests.hex.cache import draws
from spec_tests.hex.cache.draws import append, bad_stream


def calmer(x):
    """Shrink the queries until a logit is a few units, as its rounding is one of the weights'."""
    return x | dict(queries=x["queries"] / 8)


INPUTS = dict(hex_decode=append().map(calmer))

DRAWN = dict(hex_decode=masked)

REFUSALS = dict(
    hex_decode=(
        dict(cache=draws.cache, queries=draws.keys, keys=draws.keys, values=draws.values),
        [*bad_stream, Refusal("keys", lambda k: k.double(), TypeError, "torch.float32")],
    ),
)
