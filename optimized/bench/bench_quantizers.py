"""KIVI's and GEAR's caches: 8 kv heads of 128 channels, prompts of ten blocks of 96 tokens."""

import optimized as kv
from optimized.bench.timing_harness import Inputs, compare, normal, timing_test

KV_HEADS, WIDTH, PROMPT, BLOCK = 8, 128, 960, 20
SHORT = 96
"""The length of a prompt for KIVI's reference, which loops over tokens."""
DENSE = f"[{KV_HEADS}, {{}}, {WIDTH}] float32"


def prompt(tokens: int) -> Inputs:
    """Return the keys and values of a prompt, or of the tokens after it."""
    shape = KV_HEADS, tokens, WIDTH
    return dict(keys=normal(1, *shape), values=normal(2, *shape))


def span(by: str) -> Inputs:
    """Return a prompt's keys or values."""
    return dict(x=normal(1, KV_HEADS, PROMPT, WIDTH), by=by)


def kivi(tokens: int) -> Inputs:
    """Return KIVI's cache of a prompt, and the tokens that come next."""
    return dict(cache=kv.kivi_prefill(**prompt(PROMPT)), **prompt(tokens))


def gear(tokens: int) -> Inputs:
    """Return GEAR's cache of a prompt, and the tokens that come next."""
    return dict(cache=kv.gear_prefill(**prompt(PROMPT)), **prompt(tokens))


ROWS = [
    compare("kivi_prefill", DENSE.format(SHORT), lambda: prompt(SHORT)),
    compare("kivi_append", f"one token after {PROMPT}", lambda: kivi(1)),
    compare("kivi_append", f"32 tokens after {PROMPT}", lambda: kivi(32)),
    compare("kivi_read", f"{PROMPT} tokens", lambda: dict(cache=kivi(0)["cache"])),
    compare("outlier_mask", "[1024, 960] float32", lambda: dict(x=normal(3, 1024, 960))),
    compare("low_rank", DENSE.format(PROMPT), lambda: dict(x=span("channel")["x"], rank=4)),
    *(
        compare("gear_compress", f"{DENSE.format(PROMPT)}, by {by}", lambda by=by: span(by))
        for by in ("channel", "token")
    ),
    *(
        compare(
            "gear_reconstruct",
            f"{DENSE.format(PROMPT)}, by {by}",
            lambda by=by: dict(block=kv.gear_compress(**span(by))),
        )
        for by in ("channel", "token")
    ),
    compare("gear_prefill", DENSE.format(PROMPT), lambda: prompt(PROMPT)),
    compare("gear_append", f"{BLOCK} tokens after {PROMPT}", lambda: gear(BLOCK)),
    compare("gear_read", f"{PROMPT} tokens", lambda: dict(cache=gear(0)["cache"])),
]

test_timing = timing_test(ROWS)
