"""The oracle: a stock model with a full cache, whose float64 attention applies a given mask.

It uses nothing of `optimized`, and removes nothing from the cache: evicted entries are masked, and
quantised entries replace the originals.
"""

from contextvars import ContextVar
from functools import cache
from typing import NamedTuple

import torch
import transformers
from torch import Tensor
from torch.func import functional_call

from spec_tests.accuracy import assert_as_accurate
from spec_tests.internal.models.random_model import new_model, weights


class VisibleEntries(NamedTuple):
    """The entries of one layer that a turn sees of earlier tokens."""

    seen: Tensor
    """Mask of visible tokens: batch, key heads, tokens."""
    keys: Tensor | None = None
    """Keys that replace the originals, if any."""
    values: Tensor | None = None


class Turn(NamedTuple):
    """Tokens that are read in one call; attention among them is causal."""

    stop: int
    """Index after the last token."""
    layers: tuple[VisibleEntries | None, ...] = ()
    """The visible earlier entries of each layer without a window; by default all entries."""


class CurrentTurn(NamedTuple):
    """The current turn, and which of all tokens are not padding."""

    turn: Turn
    real: Tensor


NOW: ContextVar[CurrentTurn] = ContextVar("NOW")


def attend(module, query, key, value, attention_mask, scaling, **variants) -> tuple[Tensor, None]:
    """Return attention over the entries that the current turn makes visible to each head."""
    del attention_mask
    turn, real = NOW.get()
    heads, new, tokens = query.shape[1], query.shape[2], key.shape[2]
    group = torch.arange(heads) // (heads // key.shape[1])
    q, k, v = query.double(), key[:, group].double(), value[:, group].double()
    sees = torch.ones(new, tokens, dtype=torch.bool).tril(tokens - new)
    sees = (sees & real[:, None, None, :tokens]).repeat(1, heads, 1, 1)
    if (window := variants.get("sliding_window")) is not None:
        sees = sees.triu(tokens - new - window + 1)
    elif turn.layers:
        past = turn.layers[module.layer_idx]
        assert past is not None
        assert past.seen.shape[2] == tokens - new
        row = torch.arange(heads) // (heads // past.seen.shape[1])  # all heads share latent rows
        sees[..., :-new] &= past.seen[:, row, None]
        if past.keys is not None and past.values is not None:
            k = torch.cat([past.keys[:, group].double(), k[:, :, -new:]], 2)
            v = torch.cat([past.values[:, group].double(), v[:, :, -new:]], 2)
    logit = q @ k.mT * scaling
    if (bound := variants.get("softcap")) is not None:
        logit = bound * torch.tanh(logit / bound)
    weight = torch.where(sees, logit.exp(), 0)
    total = weight.sum(-1, keepdim=True)  # 0 at padding, whose output is not used
    if (sinks := variants.get("s_aux")) is not None:
        total = total + sinks.double().exp()[:, None, None]
    out = weight @ v / torch.where(total > 0, total, 1)
    return out.to(query.dtype).transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register("oracle", attend)
transformers.AttentionMaskInterface.register("oracle", lambda *_, **__: None)


@cache
def oracle_model(kind: str):
    """Return the unmodified model with the oracle's attention."""
    model = new_model(kind)
    model.set_attn_implementation("oracle")
    return model


def logits_of_turns(run, config, ids: Tensor, mask: Tensor, turns: tuple[Turn, ...]) -> Tensor:
    """Return the logits of all tokens, read turn by turn by a model with the oracle's attention."""
    layers = transformers.DynamicCache(config=config).layers
    states = any("Linear" in type(layer).__name__ for layer in layers)
    past = transformers.DynamicCache(config=config if states else None)
    read, start = [], 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    for turn in turns:
        token, new = NOW.set(CurrentTurn(turn, mask.bool())), slice(start, turn.stop)
        inputs = dict(input_ids=ids[:, new], position_ids=positions[:, new])
        inputs |= dict(attention_mask=mask[:, : turn.stop]) if states else {}
        with torch.no_grad():
            read.append(run(**inputs, past_key_values=past, use_cache=True).logits)
        NOW.reset(token)
        start = turn.stop
    return torch.cat(read, 1)


def model_logits(
    weights: dict[str, Tensor],
    kind: str,
    ids: Tensor,
    mask: Tensor,
    tokens: int = 0,
    turns: tuple[Turn, ...] = (),
) -> Tensor:
    """Return the logits of the last `tokens` tokens, or of all real tokens."""
    model = oracle_model(kind)

    def run(**inputs):
        return functional_call(model, weights, kwargs=inputs)

    logits = logits_of_turns(run, model.config, ids, mask, turns or (Turn(ids.shape[1]),))
    return logits[:, -tokens:] if tokens else logits[mask.bool()]


def assert_logits(actual: Tensor, kind: str, ids: Tensor, mask: Tensor, tokens=0, turns=()) -> None:
    """Assert that logits of the last `tokens`, or of all real tokens, are the stock model's."""
    inputs = dict(weights=weights(kind), kind=kind, ids=ids, mask=mask, tokens=tokens, turns=turns)
    assert_as_accurate(actual, model_logits, inputs)
