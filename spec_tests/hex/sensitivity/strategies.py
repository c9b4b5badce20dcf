"""Strategies for streams to compare settings on."""

from hypothesis import strategies as st

from spec_tests.hex.cache import strategies as streaming
from spec_tests.hex.cache.strategies import BLOCK, config, keys, values
from spec_tests.strategies import Refusal


@st.composite
def study(draw):
    """Streams, and settings that store everything exactly, so that rounding errors stay small."""
    queries, keys, values = draw(
        streaming.streams(draw(st.integers(1, 2 * BLOCK)), batch=((), (2,)))
    )
    kept = st.sampled_from([{"density": 1.0}, {"heavy": 1.0}, {"recent": 2 * BLOCK}])
    settings = draw(st.lists(st.tuples(streaming.configs(), kept), max_size=2))
    plain = dict(carry_recent=False, recent_per_block=True, outside_recent=False)
    return dict(
        queries=queries,
        keys=keys,
        values=values,
        prompt=draw(st.integers(0, keys.shape[-2] - 1)),
        configs=tuple(config._replace(**plain, **extra) for config, extra in settings),
    )


INPUTS = dict(sensitivity=study())

REFUSALS = dict(
    sensitivity=(
        dict(queries=keys, keys=keys, values=values, prompt=8, configs=(config,)),
        [
            *streaming.bad_stream,
            Refusal("prompt", 11, ValueError, "[0, 10]"),
            Refusal("configs", (3,), TypeError, "HexConfig"),
            Refusal("configs", (config, config._replace(bits=9)), ValueError, "[1, 8]"),
        ],
    ),
)
