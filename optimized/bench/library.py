"""Other libraries on the same queries, keys and values: PyTorch, and those that are installed.

kvpress and transformers' quantised caches want environments of their own. The presses of kvpress
get their queries ready, without the projection of hidden states and the rotary embedding, so that
both sides score alone. A quantised cache of four bits takes a step of a layer: a token is added,
and its query attends. PyTorch attends over the layer in full
precision, before its compression.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized
from optimized.bench.report import installed
from optimized.bench.straightforward.attention import attention
from optimized.bench.straightforward.rows import KV_HEADS, QUERY_HEADS, WIDTH, Inputs

Call = Callable[[], Any]


def layer_stub() -> Any:
    """Return what a press reads of an attention layer."""
    config = dict(num_attention_heads=QUERY_HEADS, num_key_value_heads=KV_HEADS)
    return SimpleNamespace(config=SimpleNamespace(**config), head_dim=WIDTH)


def snapkv(given: Inputs) -> Call:
    """Return a call of SnapKVPress with our window and kernel."""
    theirs, queries, keys = import_module("kvpress.presses.snapkv_press"), *given.values()
    vars(theirs)["get_prerope_query_states"] = lambda _, __: queries
    press = theirs.SnapKVPress(window_size=queries.shape[-2], kernel_size=5)
    hidden = keys.new_empty(1, keys.shape[-2], 1)
    still = torch.ones(1, keys.shape[-2], WIDTH, dtype=keys.dtype)
    places = dict(position_embeddings=(still, torch.zeros_like(still)))
    return lambda: press.score(layer_stub(), hidden, keys, keys, None, places)


def knorm(given: Inputs) -> Call:
    """Return a call of KnormPress."""
    press, keys = import_module("kvpress").KnormPress(), given["keys"]
    return lambda: press.score(layer_stub(), keys, keys, keys, None, {})


def expected_attention(given: Inputs) -> Call:
    """Return a call of ExpectedAttentionPress with our statistics, rotated."""
    press, turn = import_module("kvpress").ExpectedAttentionPress(), given["rotation"]
    statistics, keys, values = (given[name] for name in ("statistics", "keys", "values"))

    def moments(*_: Any) -> tuple[Tensor, Tensor]:
        both = statistics.mean @ turn.mT, turn @ statistics.covariance @ turn.mT
        return both[0].to(keys.dtype), both[1].to(keys.dtype)

    press.get_query_statistics = moments
    return lambda: press.score(layer_stub(), keys, keys, values, None, {})


def kvzip_chunk(given: Inputs) -> Call:
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


def ours_step(given: Inputs) -> Call:
    """Return a call of a step of the plug-in's HEX layer, which has read a prompt."""
    from optimized.models.attention import Softmax
    from optimized.models.hex import HexLayer

    layer, softmax = HexLayer(given["cache"].config, optimized), Softmax(WIDTH**-0.5)
    layer.update(given["keys"], given["values"])  # which notes types and devices
    layer.take_arriving()
    layer.held = given["cache"]

    def step() -> Tensor:
        layer.update(given["keys"], given["values"])
        return layer.attend(given["queries"], None, softmax)

    return step


def their_step(kind: str, given: Inputs) -> Call:
    """Return a call of a step of a quantised layer of transformers, which has read a prompt."""
    layer = getattr(import_module("transformers.cache_utils"), kind)(nbits=4)
    layer.update(*optimized.hex_read(given["cache"]))

    def step() -> Tensor:
        both = layer.update(given["keys"], given["values"])
        return F.scaled_dot_product_attention(given["queries"], *both, enable_gqa=True)

    return step


def full_precision(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return PyTorch's attention over a layer that is not compressed."""
    if queries.shape[-2] > 1:
        return attention(queries, keys, values)
    return F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)


CACHES = {"optimum-quanto": "QuantoQuantizedLayer", "hqq": "HQQQuantizedLayer"}
"""The quantised layer of transformers that a package is the backend of."""


def rivals() -> dict[tuple[str, str], Callable[[Inputs, Inputs], tuple[Call, Call]]]:
    """Return, for a function and an installed library, what makes our call and theirs.

    It takes our inputs, and the keys and values of the layer before compression.
    """

    def beside(name: str, given: Inputs, whole: Inputs) -> tuple[Call, Call]:
        theirs = partial(full_precision, given["queries"], **whole)
        return partial(getattr(optimized, name), **given), theirs

    def press(name: str, given: Inputs, _: Inputs) -> tuple[Call, Call]:
        return partial(getattr(optimized, name), **given), PRESSES[name](given)

    def step(kind: str, given: Inputs, _: Inputs) -> tuple[Call, Call]:
        return ours_step(given), their_step(kind, given)

    uncompressed = ("h2o_mass", "hex_attention", "ragged_attention")
    made: dict[Any, Any] = {(x, "full precision"): partial(beside, x) for x in uncompressed}
    if (version := installed("kvpress")) != "none":
        made |= {(name, f"kvpress {version}"): partial(press, name) for name in PRESSES}
    for name, kind in CACHES.items():
        if (version := installed(name)) != "none":
            made["hex_decode", f"{name} {version}, 4 bits"] = partial(step, kind)
    return made
