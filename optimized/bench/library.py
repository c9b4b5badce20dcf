"""Other libraries on the same queries, keys and values: PyTorch, and those that are installed.

kvpress and transformers' quantised caches want environments of their own. The presses of kvpress
get their queries ready: the projection of hidden states and the rotation change nothing, so that
both sides score alone. A quantised cache of four bits takes a step of a layer: a token is added,
and its query attends. PyTorch attends over the layer in full
precision, before its compression.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized
import reference
from optimized.bench.report import installed
from optimized.bench.straightforward.rows import WIDTH, Inputs

Call = Callable[[], Any]


def layer_stub(queries: Tensor, kv_heads: int, tokens: int) -> tuple[Any, Tensor, Inputs]:
    """Return an attention layer without rotation, the queries as its hidden states, and kwargs."""
    heads, count, width = queries.shape[-3:]
    config = SimpleNamespace(num_attention_heads=heads, num_key_value_heads=kv_heads)
    module = SimpleNamespace(config=config, head_dim=width, layer_idx=0, q_proj=torch.nn.Identity())
    hidden = queries.new_zeros(1, tokens, heads * width)
    hidden[:, tokens - count :] = queries.movedim(-3, -2).reshape(1, count, -1)
    turn = queries.new_ones(1, tokens, width), queries.new_zeros(1, tokens, width)
    return module, hidden, {"position_embeddings": turn}


def snapkv(queries: Tensor, keys: Tensor, window: int, kernel: int) -> Call:
    """Return a call of SnapKVPress."""
    press = import_module("kvpress").SnapKVPress(window_size=window, kernel_size=kernel)
    module, hidden, kwargs = layer_stub(queries, *keys.shape[1:3])
    return lambda: press.score(module, hidden, keys, keys, None, kwargs)


def knorm(keys: Tensor) -> Call:
    """Return a call of KnormPress."""
    press = import_module("kvpress").KnormPress()
    return lambda: press.score(None, None, keys, None, None, {})


def expected_attention(
    statistics: Any, keys: Tensor, values: Tensor, rotation: Tensor, sinks: int, epsilon: float
) -> Call:
    """Return a call of ExpectedAttentionPress with our statistics, rotated."""
    press = import_module("kvpress").ExpectedAttentionPress(n_sink=sinks, epsilon=epsilon)

    def moments(*_: Any) -> tuple[Tensor, Tensor]:
        both = statistics.mean @ rotation.mT, rotation @ statistics.covariance @ rotation.mT
        return both[0].to(keys.dtype), both[1].to(keys.dtype)

    press.get_query_statistics = moments
    module, hidden, _ = layer_stub(statistics.mean[..., None, :], *keys.shape[1:3])
    return lambda: press.score(module, hidden, keys, values, None, {})


def kvzip_chunk(
    queries: Tensor, keys: Tensor, repeat_keys: Tensor, index: int, chunk: int, sinks: int
) -> Call:
    """Return a call of KVzipPress on a chunk, after a prefix of `sinks` tokens."""
    press, tokens = import_module("kvpress").KVzipPress(n_sink=sinks), keys.shape[2]
    press.context_length, press.start_idx = tokens, sinks + index * chunk
    press.end_idx = min(tokens, press.start_idx + chunk)
    press.score_val = keys.new_zeros(1, 1, *keys.shape[1:3])
    module, hidden, kwargs = layer_stub(queries, keys.shape[1], repeat_keys.shape[2])
    whole = torch.cat([keys, repeat_keys], 2)

    def score() -> Tensor:
        press.score_kvzip(module, hidden, whole, whole, None, kwargs)
        return press.score_val[0]

    return score


PRESSES: dict[str, Callable[..., Call]] = dict(
    snapkv=snapkv, knorm=knorm, expected_attention=expected_attention, kvzip_chunk=kvzip_chunk
)
"""What makes the call of a press, by the function of ours that it implements."""


def with_defaults(name: str, call: Callable[..., Any], given: Inputs) -> Any:
    """Call with those inputs of a function that are taken; defaults are the specification's."""
    defaults = signature(getattr(reference, name)).parameters
    return call(**{x: given.get(x, defaults[x].default) for x in signature(call).parameters})


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


CACHES = {"optimum-quanto": "QuantoQuantizedLayer", "hqq": "HQQQuantizedLayer"}
"""The quantised layer of transformers that a package is the backend of."""


def rivals() -> dict[tuple[str, str], Callable[[Inputs, Inputs], tuple[Call, Call]]]:
    """Return, for a function and an installed library, what makes our call and theirs.

    It takes our inputs, and the keys and values of the layer before compression.
    """

    def beside(name: str, given: Inputs, whole: Inputs) -> tuple[Call, Call]:
        before = given["queries"], *whole.values()
        theirs = partial(F.scaled_dot_product_attention, *before, enable_gqa=True)
        return partial(getattr(optimized, name), **given), theirs

    def press(name: str, given: Inputs, _: Inputs) -> tuple[Call, Call]:
        return partial(getattr(optimized, name), **given), with_defaults(name, PRESSES[name], given)

    def step(kind: str, given: Inputs, _: Inputs) -> tuple[Call, Call]:
        return ours_step(given), their_step(kind, given)

    uncompressed = ("hex_attention", "ragged_attention")
    made: dict[Any, Any] = {(x, "full precision"): partial(beside, x) for x in uncompressed}
    if (version := installed("kvpress")) != "none":
        made |= {(name, f"kvpress {version}"): partial(press, name) for name in PRESSES}
    for name, kind in CACHES.items():
        if (version := installed(name)) != "none":
            made["hex_decode", f"{name} {version}, 4 bits"] = partial(step, kind)
    return made
