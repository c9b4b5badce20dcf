"""Compression while decoding: every so many tokens the cache shrinks to a fixed length."""

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference import compress_errors as refuse
from reference._update import accumulate, bounds_of, hold, shrink
from reference.evict import DenseCache, RaggedCache, evict
from reference.graphkv.refine import GraphSettings
from reference.hubkv.locality import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.precision import widen


class DecodingConfig(NamedTuple):
    """Every setting of compression while decoding.

    Source:
        HubKV-4.3.
    """

    target: int
    """Entries that a head keeps at every compression, at least 1; by `scope` a mean over heads."""
    interval: int = 128
    """New tokens from one compression to the next."""
    scope: str = "model"
    """Which entries share a budget: a `"head"`'s, a `"layer"`'s, the `"model"`'s."""
    refinement: HubSettings | GraphSettings | NmsSettings | None = None
    """What is done to the raw scores, anew each time."""
    ratio: float | None = None
    """HubKV's gate ratio; by default 1 − target / tokens seen so far."""
    sinks: int = 4
    """How many of the first positions are protected."""
    recent: int | None = None
    """How many of the last positions are protected; by default 2 % of `length`, rounded down, and
    never more than the target leaves beside the sinks."""
    original_positions: bool = False
    """Whether neighbours are so by their positions in the text, not by those in the cache."""
    length: str = "seen"
    """The sequence length of which the recent window is 2 %: all tokens `"seen"` so far, or those
    `"held"` by a head, on average, before the cache shrinks."""


class DecodingCache(NamedTuple):
    """A cache under compression: immutable, each step returns the next one.

    Source:
        HubKV-4.3.
    """

    config: DecodingConfig
    stored: DenseCache | RaggedCache
    """What the last compression left, with the positions the tokens have had from the start."""
    scores: Float[Tensor, "*heads kept"] | Float[Tensor, " entries"]
    """Raw scores of the stored entries, laid out as their positions are."""
    pending_keys: Float[Tensor, "*batch kv_heads pending width"]
    pending_values: Float[Tensor, "*batch kv_heads pending width"]
    pending_scores: Float[Tensor, "*batch kv_heads pending"]
    seen: Int64[Tensor, "*batch"]
    """How many real tokens each row has seen, those long gone among them."""


class DecodingView(NamedTuple):
    """All that a decoding cache holds, oldest first, pending tokens last.

    Heads may hold different numbers of entries: shorter ones begin with padding, which `present`
    tells apart; there the position is -1 and every other number 0.

    Source:
        HubKV-4.3.
    """

    keys: Float[Tensor, "*batch kv_heads held width"]
    values: Float[Tensor, "*batch kv_heads held width"]
    scores: Float[Tensor, "*batch kv_heads held"]
    positions: Int64[Tensor, "*batch kv_heads held"]
    present: Bool[Tensor, "*batch kv_heads held"]


def decoding_start(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scores: Float[Tensor, "*batch kv_heads tokens"],
    config: DecodingConfig,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
) -> DecodingCache:
    r"""Start from a prompt: keep all of it, or what its first compression leaves.

    $$|S_0| = \min(B, T_0)$$

    Args:
        keys: keys of the prompt, as the cache holds them; the layers are the first axis where the
            scope is `"model"`.
        values: values of the prompt, of the shape of the keys.
        scores: raw scores of the prompt's tokens by any scorer, finite, and at least 0 where
            they will be refined.
        config: settings, see `DecodingConfig`.
        valid: true at real tokens, false at the padding on the left of a row.

    Returns:
        The cache. A prompt above the target is compressed at once; positions count from 0 at each
        row's first real token.

    Raises:
        TypeError: a tensor is not floating point or boolean as it should, or `config` no
            `DecodingConfig` or of wrong parts.
        ValueError: shapes do not fit each other, a score is NaN or infinite, or negative where it
            is refined, `valid` is no left padding, or a setting is outside its range.

    Source:
        HubKV-4.3.

    Reading:
        E-U12, E-U36, E-U45: protected tokens follow from positions, the recent ones are 2 % of
        all tokens seen; the prompt counts as the first update; all layers compete by default.
    """
    refuse.decoding("config", config, DecodingConfig)
    refuse.prompt(keys, values, scores, config, valid)
    if valid is None:
        valid = torch.ones_like(scores[..., 0, :], dtype=torch.bool)
    valid = valid.expand(*scores.shape[:-2], scores.shape[-1])
    here = valid[..., None, :].expand(scores.shape)
    stored = evict(keys, values, here)
    none = slice(0, 0)
    cache = DecodingCache(
        config,
        stored,
        scores=widen(scores)[here].view(stored.positions.shape),
        pending_keys=keys[..., none, :].clone(),
        pending_values=values[..., none, :].clone(),
        pending_scores=widen(scores)[..., none].clone(),
        seen=valid.sum(-1),
    )
    first = (~valid).sum(-1)[..., None, None].expand(*scores.shape[:-1], 1)
    place = torch.arange(scores.shape[-1], device=keys.device) - first
    stored = stored._replace(positions=place[here].view(stored.positions.shape))
    cache = cache._replace(stored=stored)
    return shrink(cache, decoding_read(cache))


def decoding_append(
    cache: DecodingCache,
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scores: Float[Tensor, "*batch kv_heads tokens"],
    mass: Float[Tensor, "*batch kv_heads held"] | None = None,
) -> DecodingCache:
    r"""Add decoded tokens, and compress the cache whenever an interval of them is full.

    $$S_{t} = \mathrm{TopB}\bigl(\operatorname{refine}(s_{S_{t-1} \cup N_t})\bigr), \qquad
      |N_t| = 128$$

    Args:
        cache: the cache so far.
        keys: keys of the new tokens.
        values: values of the new tokens, of the shape of the keys.
        scores: raw scores of the new tokens, as for the prompt.
        mass: what the new tokens' queries add to the scores of the tokens held, laid out as
            `decoding_read` does; for H2O the attention they pay to each. It is added before
            anything is compressed, and not read at padding.

    Returns:
        The next cache. Tokens may come one by one or many at a time.

    Raises:
        TypeError: `cache` is no `DecodingCache`, or a tensor not floating point or of another type
            than the cache.
        ValueError: shapes do not fit each other or the cache, a score is NaN or infinite, or
            negative where it is refined.

    Source:
        HubKV-4.3.

    Reading:
        E-U11, E-U12: the gate sees what was removed of all tokens seen; raw scores are kept and
        refined anew each time, among the neighbours the cache has left.
    """
    refuse.only("cache", cache, DecodingCache)
    refuse.arrival(cache, keys, values, scores)
    if mass is not None:
        cache = accumulate(cache, mass, decoding_read(cache).present)
    start, length, interval = 0, keys.shape[-2], cache.config.interval
    while start < length:
        stop = min(length, start + interval - cache.pending_scores.shape[-1])
        cache = hold(
            cache, *(x[..., start:stop, :] for x in (keys, values)), scores[..., start:stop]
        )
        start = stop
        if cache.pending_scores.shape[-1] == interval:
            cache = shrink(cache, decoding_read(cache))
    return cache


def decoding_read(cache: DecodingCache) -> DecodingView:
    r"""Return all entries held, stored and pending, with their raw scores and positions.

    $$X = X_{S_t} \,\Vert\, X_{N_t}$$

    Args:
        cache: the cache.

    Returns:
        Keys, values, raw scores and true positions, and which of them are there: heads with fewer
        entries are padded on the left.

    Raises:
        TypeError: `cache` is no `DecodingCache`.

    Source:
        HubKV-4.3.
    """
    refuse.only("cache", cache, DecodingCache)
    heads, pending = cache.pending_scores.shape[:-1], cache.pending_scores.shape[-1]
    stored, bounds = cache.stored, bounds_of(cache)
    width, older = stored.keys.shape[-1], max(bounds.diff().tolist(), default=0)
    arrived = cache.seen[..., None] - pending + torch.arange(pending, device=bounds.device)
    old = (
        stored.keys.reshape(-1, width),
        stored.values.reshape(-1, width),
        widen(cache.scores).flatten(),
        stored.positions.flatten(),
    )
    new = (
        cache.pending_keys,
        cache.pending_values,
        cache.pending_scores,
        arrived[..., None, :].expand(*heads, pending),
    )
    view = DecodingView(
        keys=stored.keys.new_zeros(*heads, older + pending, width),
        values=stored.values.new_zeros(*heads, older + pending, width),
        scores=widen(cache.scores).new_zeros(*heads, older + pending),
        positions=bounds.new_full((*heads, older + pending), -1),
        present=torch.zeros(*heads, older + pending, dtype=torch.bool, device=bounds.device),
    )
    for h, head in enumerate(product(*map(range, heads))):
        entries = slice(bounds[h], bounds[h + 1])
        start = older - int(bounds[h + 1] - bounds[h])
        for part, stayed, came in zip(view[:-1], old, new, strict=True):
            part[head][start:older] = stayed[entries]
            part[head][older:] = came[head]
        view.present[head][start:] = True
    return view
