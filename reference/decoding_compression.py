"""Compression while decoding: at fixed intervals the cache shrinks to a fixed length."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.compress import one_flag_per_token, unpadded_row_indices, vectors_compared
from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import AXES, left_padded, nonnegative_at_most, scoped
from reference.contract.types import Positive, Ratio, Scope, Whole
from reference.evict import DenseCache, RaggedCache, evict
from reference.graphkv.refine import GraphSettings
from reference.hubkv.refine import at_ends
from reference.precision import widen
from reference.refinement import Refinement, finite, refine
from reference.retain import retain
from reference.scorers.scored import Scored


def held_sinks(name: str, sinks: int, target: int) -> None:
    """Refuse more sinks than the target."""
    nonnegative_at_most(f"{name}.sinks", sinks, target)


def graph_of_entries(name: str, refinement: Refinement | None, scope: str) -> None:
    """Refuse graph settings that need queries, an input length, or equal tokens in all heads."""
    if not isinstance(refinement, GraphSettings):
        return
    allowed = {"kind": ("kk", "kv", "vv"), "adaptive": (False,)}
    if scope != "head":  # heads then hold different tokens
        allowed |= {"per_head": (True,), "exclude_window": (False,)}
    for field, choices in allowed.items():
        value = getattr(refinement, field)
        value = value if isinstance(value, str) else bool(value)  # NumPy has its own booleans
        checks.one_of(f"{name}.refinement.{field}", value, choices)


class DecodingConfig(NamedTuple):
    """The settings of compression while decoding.

    Source:
        HubKV-4.3.
    """

    target: Positive
    """Entries that each head keeps after a compression, at least 1; in other scopes a mean over
    heads."""
    interval: Positive = 128
    """New tokens from one compression to the next."""
    scope: Scope = "model"
    """Which entries share a budget: those of a `"head"`, of a `"layer"` or of the `"model"`."""
    refinement: Refinement | None = None
    """The refinement, applied to the raw scores at each compression."""
    ratio: Ratio | None = None
    """HubKV's gate ratio; by default 1 − target / tokens seen so far."""
    sinks: Whole = 4
    """Number of protected positions at the start."""
    recent: Whole | None = None
    """Number of protected positions at the end. The default is 2 % of `length`, rounded down, but
    at most the target without the sinks."""
    original_positions: bool = False
    """Whether neighbours are taken by position in the text; by default by place in the cache."""
    length: Literal["seen", "held"] = "seen"
    """The length whose 2 % is the recent window: all tokens `"seen"` so far, or the mean number
    `"held"` by a head before the compression."""

    rules = (held_sinks, graph_of_entries)


class DecodingCache(NamedTuple):
    """A cache that is compressed while decoding; immutable, so each step returns a new one.

    Source:
        HubKV-4.3.
    """

    config: DecodingConfig
    stored: DenseCache | RaggedCache
    """Entries left by the last compression, with their positions in the whole text."""
    scores: Float[Tensor, "*heads kept"] | Float[Tensor, " entries"]
    """Raw scores of the stored entries, in the layout of their positions."""
    pending_keys: Float[Tensor, "*batch kv_heads pending width"]
    pending_values: Float[Tensor, "*batch kv_heads pending width"]
    pending_scores: Float[Tensor, "*batch kv_heads pending"]
    seen: Int64[Tensor, "*batch"]
    """Number of real tokens that each row has seen, evicted ones included."""


class DecodingView(NamedTuple):
    """All entries of a decoding cache, oldest first, pending tokens last.

    Heads may hold different numbers of entries. Shorter ones start with padding: there `present` is
    false, the position is -1 and every other number is 0.

    Source:
        HubKV-4.3.
    """

    keys: Float[Tensor, "*batch kv_heads held width"]
    values: Float[Tensor, "*batch kv_heads held width"]
    scores: Float[Tensor, "*batch kv_heads held"]
    positions: Int64[Tensor, "*batch kv_heads held"]
    present: Bool[Tensor, "*batch kv_heads held"]


def prompt(scores: Tensor, config: DecodingConfig, valid: Tensor | None) -> None:
    """Refuse scores that lack a scope axis or cannot be refined, or a mask of other rows."""
    scoped(scores, config.scope)
    one_flag_per_token(valid, scores, config.scope)
    real = None if valid is None else valid[..., None, :]
    finite("scores", scores, real, config.refinement is not None)


def waiting(cache: DecodingCache) -> None:
    """Refuse a cache with at least as many pending tokens as its interval."""
    pending, interval = cache.pending_scores.shape[-1], cache.config.interval
    if pending >= interval:
        raise ValueError(
            f"cache must have fewer pending tokens than its interval of {interval}, got {pending}"
        )


def joining(cache: DecodingCache, keys: Tensor, values: Tensor) -> None:
    """Refuse tokens of another dtype than those in the cache."""
    checks.typed("keys", keys, cache.pending_keys.dtype)
    checks.typed("values", values, cache.pending_values.dtype)


def usable(cache: DecodingCache, scores: Tensor) -> None:
    """Refuse scores that are not finite, or are negative where they are refined."""
    finite("scores", scores, None, cache.config.refinement is not None)


def addable(cache: DecodingCache, mass: Tensor | None) -> None:
    """Refuse mass of another shape than the cache, or that gives an inadmissible score."""
    if mass is None:
        return
    where = present(cache, stayed(cache))
    checks.shaped("mass", mass, where.shape)
    finite("mass", mass, where, cache.config.refinement is not None)


@requires(prompt, left_padded)
def decoding_start(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scores: Float[Tensor, "*batch kv_heads tokens"],
    config: DecodingConfig,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
) -> DecodingCache:
    r"""Start from a prompt: keep all of it, or compress it once.

    $$|S_0| = \min(B, T_0)$$

    Args:
        keys: keys of the prompt, as the cache holds them; the layers are the first axis where the
            scope is `"model"`.
        values: values of the prompt.
        scores: raw scores of the prompt's tokens by any scorer, finite, and at least 0 where
            they will be refined.
        config: settings, see `DecodingConfig`.
        valid: true at real tokens, false at the padding on the left of a row.

    Returns:
        The cache. A prompt above the target is compressed at once; positions count from 0 at each
        row's first real token.

    Source:
        HubKV-4.3. In words (A.1): "the cache is repeatedly compressed during generation rather than
        compressed only once after prefill". That the prompt is the first update is ours (E-U36).

    Reading:
        E-U12, E-U36, E-U45: protected tokens follow from positions, the recent ones are 2 % of
        all tokens seen; the prompt counts as the first update; all layers compete by default.
    """
    *batch, _, tokens = scores.shape
    valid = scores.new_ones(tokens, dtype=torch.bool) if valid is None else valid
    seen = valid.expand(*batch, tokens).sum(-1)
    position = torch.arange(tokens, device=seen.device) - tokens + seen[..., None]
    positions = position.clamp(min=-1)[..., None, :].expand(scores.shape)
    view = DecodingView(keys, values, widen(scores), positions, positions >= 0)
    return compress_to_target(view, seen, config)


@requires(waiting, joining, usable, addable)
def decoding_append(
    cache: DecodingCache,
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scores: Float[Tensor, "*batch kv_heads tokens"],
    mass: Float[Tensor, "*batch kv_heads held"] | None = None,
) -> DecodingCache:
    r"""Add decoded tokens, and compress the cache after every full interval.

    $$S_{t} = \mathrm{TopB}\bigl(\operatorname{refine}(s_{S_{t-1} \cup N_t})\bigr), \qquad
      |N_t| = 128$$

    Args:
        cache: the cache so far.
        keys: keys of the new tokens.
        values: values of the new tokens.
        scores: raw scores of the new tokens, as for the prompt.
        mass: the amount that the new tokens' queries add to the scores in the cache, in the layout
            of `decoding_read`; for H2O it is their attention. It is added before any compression,
            and not read at padding.

    Returns:
        The next cache. One call may add one token or many.

    Source:
        HubKV-4.3. In words (A.1): "set the cache update interval to 128 decoding steps, and
        evaluate fixed target KV lengths". The gate's ratio, and that raw scores are kept, are ours
        (E-U11, E-U12).

    Reading:
        E-U11, E-U12: the gate takes the removed share of all tokens seen; raw scores are kept, and
        refined at each compression among the neighbours left in the cache.
    """
    if mass is not None:
        cache = add_mass(cache, mass)
    while keys.shape[-2]:
        room = cache.config.interval - cache.pending_scores.shape[-1]
        cache = add_pending(cache, keys[..., :room, :], values[..., :room, :], scores[..., :room])
        keys, values, scores = keys[..., room:, :], values[..., room:, :], scores[..., room:]
        if cache.pending_scores.shape[-1] == cache.config.interval:
            cache = compress_to_target(decoding_read(cache), cache.seen, cache.config)
    return cache


def decoding_read(cache: DecodingCache) -> DecodingView:
    r"""Return all entries of the cache, stored and pending, with their raw scores and positions.

    $$X = X_{S_t} \,\Vert\, X_{N_t}$$

    Args:
        cache: the cache.

    Returns:
        Keys, values, raw scores and true positions, and a mask of real entries: heads with fewer
        entries are padded on the left.

    Source:
        HubKV-4.3. Ours: what attention reads between two updates.
    """
    stored, here, pending = cache.stored, stayed(cache), cache.pending_scores.shape
    come = cache.seen[..., None] - pending[-1] + torch.arange(pending[-1], device=here.device)
    return DecodingView(
        torch.cat([laid_out(stored.keys, cache, here), cache.pending_keys], -2),
        torch.cat([laid_out(stored.values, cache, here), cache.pending_values], -2),
        torch.cat([laid_out(widen(cache.scores), cache, here), cache.pending_scores], -1),
        torch.cat(
            [laid_out(stored.positions, cache, here, -1), come[..., None, :].expand(pending)], -1
        ),
        present(cache, here),
    )


def present(cache: DecodingCache, here: Tensor) -> Tensor:
    """Mark the real entries: the stored ones of each head, then all pending ones."""
    return torch.cat([here, here.new_ones(cache.pending_scores.shape)], -1)


def stayed(cache: DecodingCache) -> Tensor:
    """Mark the stored entries of each head, at the right end of shorter heads."""
    if isinstance(cache.stored, DenseCache):
        return torch.ones_like(cache.stored.positions, dtype=torch.bool)
    counts = cache.stored.offsets.diff().view(*cache.pending_scores.shape[:-1], 1)
    return torch.arange(int(counts.amax()), 0, -1, device=counts.device) <= counts


def laid_out(part: Tensor, cache: DecodingCache, here: Tensor, blank: int = 0) -> Tensor:
    """Return stored entries as a dense tensor, with blanks before those of shorter heads."""
    if isinstance(cache.stored, DenseCache):
        return part
    laid = part.new_full((*here.shape, *part.shape[1:]), blank)
    laid[here] = part
    return laid


def add_mass(cache: DecodingCache, mass: Tensor) -> DecodingCache:
    """Add mass to the raw scores of all entries."""
    older = mass.shape[-1] - cache.pending_scores.shape[-1]
    stored, pending = widen(mass).split([older, mass.shape[-1] - older], -1)
    if not isinstance(cache.stored, DenseCache):
        stored = stored[stayed(cache)]
    return cache._replace(
        scores=widen(cache.scores) + stored, pending_scores=cache.pending_scores + pending
    )


def add_pending(
    cache: DecodingCache, keys: Tensor, values: Tensor, scores: Tensor
) -> DecodingCache:
    """Append tokens to the pending ones."""
    return cache._replace(
        pending_keys=torch.cat([cache.pending_keys, keys], -2),
        pending_values=torch.cat([cache.pending_values, values], -2),
        pending_scores=torch.cat([cache.pending_scores, widen(scores)], -1),
        seen=cache.seen + keys.shape[-2],
    )


def compress_to_target(view: DecodingView, seen: Tensor, config: DecodingConfig) -> DecodingCache:
    """Compress a cache to its target."""
    kept = survivors(view, seen, config)
    left = evict(view.keys, view.values, kept)
    shape = left.positions.shape
    return DecodingCache(
        config,
        left._replace(positions=view.positions[kept].view(shape)),
        view.scores[kept].view(shape),
        view.keys[..., :0, :].clone(),
        view.values[..., :0, :].clone(),
        view.scores[..., :0].clone(),
        seen,
    )


def survivors(view: DecodingView, seen: Tensor, config: DecodingConfig) -> Tensor:
    """Mark the entries to keep: protected positions, then the best by refined score."""
    scope, vectors = config.scope, vectors_compared(config.refinement, view.keys, view.values, None)
    there = view.present.any(-2)
    kept = torch.zeros_like(view.present)
    for _, row in unpadded_row_indices(
        view.scores, scope, there.any(0) if scope == "model" else there
    ):
        here, positions = view.present[row], view.positions[row]
        if not here.any():
            continue
        tokens, heads = int(seen[row[:-2]].max()), here.shape[:-1].numel()
        length = tokens if config.length == "seen" else int(here.sum()) // heads
        window = length // 50 if config.recent is None else config.recent
        window = min(window, config.target - config.sinks)
        shielded = here & at_ends(positions, tokens, config.sinks, window)
        scored = Scored(view.scores[row], shielded | ~here)
        compared = {name: x[row] for name, x in vectors.items()}
        refined = _refined(scored, positions, tokens, compared, config)
        # an entry that a signal evicts still ranks above a missing one
        ranked = refined.clamp(min=torch.finfo(refined.dtype).min).masked_fill(~here, -torch.inf)
        pools = here.flatten(-AXES[scope])
        full = config.target * (pools.shape[-1] // here.shape[-1])
        budgets = pools.sum(-1).clamp(max=full)
        kept[row] = retain(ranked, shielded, keep=budgets, scope=scope)
    return kept


def _refined(
    scored: Scored,
    positions: Tensor,
    tokens: int,
    vectors: dict[str, Tensor],
    config: DecodingConfig,
) -> Tensor:
    """Refine one row, where neighbours are those in the cache or those in the text."""
    ratio = max(0.0, 1 - config.target / max(1, tokens)) if config.ratio is None else config.ratio
    if not config.original_positions or isinstance(config.refinement, GraphSettings):
        return refine(scored, config.refinement, keep=config.target, ratio=ratio, **vectors)
    text = scatter_to_positions(scored, positions, tokens)
    refined = refine(text, config.refinement, keep=config.target, ratio=ratio)
    return refined.gather(-1, positions.clamp(min=0))


def scatter_to_positions(scored: Scored, positions: Tensor, tokens: int) -> Scored:
    """Scatter entries to their positions in the text; all other positions are protected."""
    line = (*positions.shape[:-1], tokens + 1)  # the extra column receives missing entries
    where = positions.masked_fill(positions < 0, tokens)
    scores = scored.scores.new_zeros(line).scatter(-1, where, scored.scores)
    outside = scored.protected.new_ones(line).scatter(-1, where, scored.protected)
    return Scored(scores[..., :tokens], outside[..., :tokens])
