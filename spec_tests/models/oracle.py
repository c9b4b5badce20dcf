"""A stock model with a full cache, whose attention sees, in float64, what it is told to see.

Nothing of `optimized` is used here, and nothing is ever taken out of the cache: what is evicted is
masked, and what is quantised stands in its place.
"""

from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

import torch
import transformers
from torch import Tensor
from torch.func import functional_call

from spec_tests.accuracy import assert_as_accurate
from spec_tests.models.random_model import fresh, weights


class Past(NamedTuple):
    """What one layer sees of the tokens before a turn."""

    seen: Tensor
    """Whether a token is there: batch, key heads, tokens."""
    keys: Tensor | None = None
    """What stands in place of the keys, where something does."""
    values: Tensor | None = None


class Turn(NamedTuple):
    """Some tokens that are read at once; they see each other causally."""

    stop: int
    """Where they end."""
    layers: tuple[Past | None, ...] = ()
    """What each layer that has no window sees of the tokens before; by default all of them."""


class Now(NamedTuple):
    """The turn at hand, and which of all tokens are no padding."""

    turn: Turn
    real: Tensor


NOW: ContextVar[Now] = ContextVar("NOW")


def attend(module, query, key, value, attention_mask, scaling, **variants) -> tuple[Tensor, None]:
    """Attend to what the turn at hand lets each query head see."""
    del attention_mask
    turn, real = NOW.get()
    heads, new, tokens = query.shape[1], query.shape[2], key.shape[2]
    of = torch.arange(heads) // (heads // key.shape[1])
    q, k, v = query.double(), key[:, of].double(), value[:, of].double()
    sees = torch.ones(new, tokens, dtype=torch.bool).tril(tokens - new)
    sees = (sees & real[:, None, None, :tokens]).repeat(1, heads, 1, 1)
    if (window := variants.get("sliding_window")) is not None:
        sees = sees.triu(tokens - new - window + 1)
    elif turn.layers:
        past = turn.layers[module.layer_idx]
        assert past is not None
        assert past.seen.shape[2] == tokens - new
        row = torch.arange(heads) // (heads // past.seen.shape[1])  # latent rows are all heads'
        sees[..., :-new] &= past.seen[:, row, None]
        if past.keys is not None and past.values is not None:
            k = torch.cat([past.keys[:, of].double(), k[:, :, -new:]], 2)
            v = torch.cat([past.values[:, of].double(), v[:, :, -new:]], 2)
    logit = q @ k.mT * scaling
    if (bound := variants.get("softcap")) is not None:
        logit = bound * torch.tanh(logit / bound)
    weight = torch.where(sees, logit.exp(), 0)
    total = weight.sum(-1, keepdim=True)  # 0 at padding, which nobody looks at
    if (sinks := variants.get("s_aux")) is not None:
        total = total + sinks.double().exp()[:, None, None]
    out = weight @ v / torch.where(total > 0, total, 1)
    return out.to(query.dtype).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("oracle", attend)
transformers.AttentionMaskInterface.register("oracle", lambda *_, **__: None)


@cache
def stock(kind: str):
    """The unmodified model, but for where it looks."""
    model = fresh(kind)
    model.set_attn_implementation("oracle")
    return model


def model_logits(
    weights: dict[str, Tensor],
    kind: str,
    ids: Tensor,
    mask: Tensor,
    tokens: int = 0,
    turns: tuple[Turn, ...] = (),
) -> Tensor:
    """Logits at the last `tokens` tokens, or at all that are real."""
    layers = transformers.DynamicCache(config=stock(kind).config).layers
    states = any("Linear" in type(layer).__name__ for layer in layers)
    held = transformers.DynamicCache(config=stock(kind).config if states else None)
    read, start = [], 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    for turn in turns or (Turn(ids.shape[1]),):
        token = NOW.set(Now(turn, mask.bool()))
        with torch.no_grad():
            new = slice(start, turn.stop)
            inputs = dict(input_ids=ids[:, new], position_ids=positions[:, new])
            inputs |= dict(past_key_values=held, use_cache=True)
            if states:
                inputs["attention_mask"] = mask[:, : turn.stop]
            read.append(functional_call(stock(kind), weights, kwargs=inputs).logits)
        NOW.reset(token)
        start = turn.stop
    logits = torch.cat(read, 1)
    return logits[:, -tokens:] if tokens else logits[mask.bool()]


def assert_logits(actual: Tensor, kind: str, ids: Tensor, mask: Tensor, tokens=0, turns=()) -> None:
    """The logits of the last tokens, or of all that are real, are the stock model's."""
    inputs = dict(weights=weights(kind), kind=kind, ids=ids, mask=mask, tokens=tokens, turns=turns)
    assert_as_accurate(actual, model_logits, inputs)
