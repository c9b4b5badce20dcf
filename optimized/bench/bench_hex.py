"""HEX's cache: 8 kv heads of 128 channels, a block of 96 tokens or a prompt of ten."""

import torch
from torch import Tensor

import optimized as kv
from optimized.bench.timing_harness import Inputs, compare, normal, timing_test

ALSO = ("hex_mask",)
KV_HEADS, QUERY_HEADS, WIDTH, BLOCK, PROMPT = 8, 16, 128, 96, 960
CONFIG = kv.hex_preset("HEX-3")
DENSE = f"[{KV_HEADS}, {{}}, {WIDTH}] float32"
GROUPED = DENSE + f", {QUERY_HEADS} query heads"


def attended(tokens: int) -> Inputs:
    """Return queries and keys of one length."""
    queries = normal(0, QUERY_HEADS, tokens, WIDTH)
    return dict(queries=queries, keys=normal(1, KV_HEADS, tokens, WIDTH))


def dense(tokens: int) -> Inputs:
    """Return the keys and values of a span."""
    return {
        name: normal(seed, KV_HEADS, tokens, WIDTH) for seed, name in ((1, "keys"), (2, "values"))
    }


def span(tokens: int) -> Inputs:
    """Return a span and its masks."""
    expander = kv.expander_mask(tokens, KV_HEADS * WIDTH, CONFIG.density)
    dynamic = kv.h2o_mask(normal(3, tokens).abs(), CONFIG.heavy, CONFIG.recent)
    return dense(tokens) | dict(expander=expander, dynamic=dynamic)


def prompt(tokens: int) -> Inputs:
    """Return the arguments of a prefill."""
    return attended(tokens) | dense(tokens) | dict(config=CONFIG)


def codes(rows: int, length: int) -> Tensor:
    """Return codes of 3 bits."""
    return normal(4, rows, length).mul(8).long().remainder(8).to(torch.uint8)


def words(rows: int, length: int) -> Inputs:
    """Return packed codes of 3 bits."""
    return dict(words=kv.pack_bits(codes(rows, length), 3), bits=3, length=length)


def block(tokens: int) -> Inputs:
    """Return a compressed span and the mask that restores it."""
    x = span(tokens)
    return dict(block=kv.hex_compress(**x), expander=x["expander"])


def decoded(prompt_length: int, tokens: int) -> Inputs:
    """Return a cache and the tokens that come next."""
    cache = kv.hex_prefill(**prompt(prompt_length))
    return dict(cache=cache, **attended(tokens), values=normal(5, KV_HEADS, tokens, WIDTH))


ROWS = [
    *(
        compare("attention_mass", GROUPED.format(n), lambda n=n: attended(n))
        for n in (BLOCK, PROMPT)
    ),
    compare("h2o_mask", "[8, 8192] float32", lambda: dict(mass=normal(3, 8, 8192).abs())),
    compare("quantise", "[1024, 96] float32", lambda: dict(x=normal(1, 1024, BLOCK), bits=3)),
    *(compare("kcvt", DENSE.format(n), lambda n=n: dense(n)) for n in (BLOCK, PROMPT)),
    compare("pack_bits", "[1024, 96], 3 bits", lambda: dict(codes=codes(1024, BLOCK), bits=3)),
    compare("pack_bits", "[1024, 960], 3 bits", lambda: dict(codes=codes(1024, PROMPT), bits=3)),
    compare("unpack_bits", "[1024, 96], 3 bits", lambda: words(1024, BLOCK)),
    compare("unpack_bits", "[1024, 960], 3 bits", lambda: words(1024, PROMPT)),
    *(compare("hex_compress", DENSE.format(n), lambda n=n: span(n)) for n in (BLOCK, PROMPT)),
    *(compare("hex_reconstruct", DENSE.format(n), lambda n=n: block(n)) for n in (BLOCK, PROMPT)),
    compare("hex_prefill", GROUPED.format(PROMPT), lambda: prompt(PROMPT)),
    compare("hex_append", f"one token after {PROMPT}", lambda: decoded(PROMPT, 1)),
    compare("hex_append", f"{BLOCK} tokens after {PROMPT}", lambda: decoded(PROMPT, BLOCK)),
    compare("hex_read", f"{PROMPT} tokens", lambda: dict(cache=decoded(PROMPT, 0)["cache"])),
]

test_timing = timing_test(ROWS)
