"""The scorers of kvpress on the same queries, keys and values: `python -m optimized.bench library`.

It runs in an environment with kvpress. The presses get their queries ready, without the projection
of hidden states and the rotary embedding, so that both sides score alone.
"""

from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace
from typing import Any

import torch

import optimized
from optimized.bench.ratios import DTYPES, SIZES, Table, measured
from optimized.bench.report import installed
from optimized.bench.straightforward import ROWS
from optimized.bench.straightforward.rows import KV_HEADS, QUERY_HEADS, WIDTH

Call = Any


def layer_stub() -> Any:
    """Return what a press reads of an attention layer."""
    config = dict(num_attention_heads=QUERY_HEADS, num_key_value_heads=KV_HEADS)
    return SimpleNamespace(config=SimpleNamespace(**config), head_dim=WIDTH)


def snapkv(given: dict[str, Any]) -> Call:
    """Return a call of SnapKVPress with our window and kernel."""
    theirs, queries, keys = import_module("kvpress.presses.snapkv_press"), *given.values()
    vars(theirs)["get_prerope_query_states"] = lambda _, __: queries
    press = theirs.SnapKVPress(window_size=queries.shape[-2], kernel_size=5)
    hidden = keys.new_empty(1, keys.shape[-2], 1)
    still = torch.ones(1, keys.shape[-2], WIDTH, dtype=keys.dtype)
    places = dict(position_embeddings=(still, torch.zeros_like(still)))
    return lambda: press.score(layer_stub(), hidden, keys, keys, None, places)


def knorm(given: dict[str, Any]) -> Call:
    """Return a call of KnormPress."""
    press, keys = import_module("kvpress").KnormPress(), given["keys"]
    return lambda: press.score(layer_stub(), keys, keys, keys, None, {})


def expected_attention(given: dict[str, Any]) -> Call:
    """Return a call of ExpectedAttentionPress with our statistics, rotated."""
    press, turn = import_module("kvpress").ExpectedAttentionPress(), given["rotation"]
    statistics, keys, values = (given[name] for name in ("statistics", "keys", "values"))

    def moments(*_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        both = statistics.mean @ turn.mT, turn @ statistics.covariance @ turn.mT
        return both[0].to(keys.dtype), both[1].to(keys.dtype)

    press.get_query_statistics = moments
    return lambda: press.score(layer_stub(), keys, keys, values, None, {})


def kvzip_chunk(given: dict[str, Any]) -> Call:
    """Return a call of KVzipPress on the first chunk, whose repetition the cache holds."""
    theirs, queries = import_module("kvpress.presses.kvzip_press"), given["queries"]
    vars(theirs)["get_prerope_query_states"] = lambda _, __: queries
    press, tokens, count = theirs.KVzipPress(), given["keys"].shape[-2], queries.shape[-2]
    press.context_length, press.start_idx = tokens, press.n_sink
    press.end_idx = min(tokens, press.n_sink + given["chunk"])
    keys = torch.cat([given["keys"], given["repeat_keys"]], -2)
    press.score_val = torch.zeros(1, 1, KV_HEADS, tokens, dtype=keys.dtype)
    layer, hidden = layer_stub(), keys.new_empty(1, count, 1)
    layer.layer_idx = 0
    still = torch.ones(1, count, WIDTH, dtype=keys.dtype)
    places = dict(position_embeddings=(still, torch.zeros_like(still)))
    return lambda: press.score_kvzip(layer, hidden, keys, keys, None, places)


PRESSES = dict(
    snapkv=snapkv, knorm=knorm, expected_attention=expected_attention, kvzip_chunk=kvzip_chunk
)
"""The call of a press on the inputs of a function."""


def library(table: Table, names: list[str]) -> None:
    """Measure functions against their presses."""
    if find_spec("kvpress") is None:
        raise SystemExit("kvpress is not installed: pip install -c constraints.txt kvpress")
    against = f"kvpress {installed('kvpress')}"
    for tokens, name, dtype in product(SIZES, names, DTYPES):
        line = dict(function=name, against=against, tokens=str(tokens), dtype=str(dtype)[6:])
        line |= dict(shape=ROWS[name].shape.format(tokens))
        if table.known(line) is None:
            given = ROWS[name].inputs(tokens, dtype)
            ours = partial(getattr(optimized, name), **given)
            table.add(line | measured(ours, PRESSES[name](given)))
