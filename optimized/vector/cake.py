"""CAKE's scores, preferences and budgets, all heads and layers at once."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector.attention import attention_weights
from optimized.vector.scorers._rows import protected_ends as protected
from reference import Scored, attention_errors, errors
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors
from reference.scorers._rows import real_tokens as real


def cake(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    window: int = 32,
    gamma: float = 200.0,
    kernel: int = 5,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    attention_errors.attendable(queries, keys, True)
    errors.whole("window", window, 2)
    scoring_errors.non_negative_finite("gamma", gamma)
    refuse.odd("kernel", kernel)
    batch, (kv_heads, tokens) = keys.shape[:-3], keys.shape[-3:-1]
    refuse.observers(queries.shape[-2], window, tokens)
    mask = real(valid, keys)
    refuse.padding(mask, (*batch, tokens))
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    old = tokens - window
    if old > 0:
        weights = _observed(queries, keys, window, valid)
        variance, mean = _variance(weights), weights.mean(-2)
        group = queries.shape[-3] // max(1, kv_heads)
        indicator = (mean + gamma * variance).reshape(*batch, kv_heads, group, old)
        if indicator.numel():
            flat = indicator.mean(-2).reshape(-1, 1, old)
            scores[..., :old] = F.avg_pool1d(flat, kernel, 1, kernel // 2).reshape(
                *batch, kv_heads, old
            )
        scores = scores.masked_fill(~mask[..., None, :], 0)
    scoring_errors.leads_to("gamma", gamma, scores)
    return Scored(scores, protected(mask, kv_heads, 0, window))


def cake_preference(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    window: int = 32,
    tau1: float = 1.0,
    tau2: float = 1.0,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Float[Tensor, "*batch"]:
    attention_errors.attendable(queries, keys, True)
    errors.whole("window", window, 2)
    errors.positive_finite("tau1", tau1)
    errors.positive_finite("tau2", tau2)
    batch, tokens = keys.shape[:-3], keys.shape[-2]
    refuse.observers(queries.shape[-2], window, tokens)
    refuse.padding(real(valid, keys), (*batch, tokens))
    if tokens <= window:
        return keys.new_zeros(batch, dtype=torch.float32)
    observing = queries[..., -window:, :].double()
    weights = _observed(observing, keys.double(), window, valid)
    entropy = -(weights * (weights + 1e-10).log()).sum((-3, -2, -1)).clamp(max=0)
    change = _variance(weights).sum((-2, -1))
    preference = (entropy ** (1 / tau1) * change ** (1 / tau2)).float()
    scoring_errors.leads_to("tau1", tau1, preference)
    return preference


def _variance(weights: Tensor) -> Tensor:
    """Return the unbiased variance over the queries."""
    deviations = weights - weights.mean(-2, keepdim=True)
    return deviations.square().sum(-2) / (weights.shape[-2] - 1)


def _observed(queries: Tensor, keys: Tensor, window: int, valid: Tensor | None) -> Tensor:
    """Return the weights of the last queries on the tokens before them, 0 on padding."""
    last = queries[..., -window:, :]
    if valid is None:
        return attention_weights(last, keys)[..., : keys.shape[-2] - window]
    padding = ~valid[..., None, None, :]
    return _padded_weights(last, keys, padding)[..., : keys.shape[-2] - window]


def _padded_weights(queries: Tensor, keys: Tensor, padding: Tensor) -> Tensor:
    """Return the causal weights over what is not padding; a query that sees nothing has none."""
    *batch, heads, count, width = queries.shape
    kv_heads, tokens = keys.shape[-3:-1]
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    scaled = queries.to(exact) * width**-0.5
    group = heads // max(1, kv_heads)
    stacked = scaled.reshape(*batch, kv_heads, group * count, width) @ keys.to(exact).mT
    logits = stacked.reshape(*batch, heads, count, tokens)
    unseen = torch.ones(count, tokens, dtype=torch.bool, device=keys.device)
    unseen = unseen.triu(tokens - count + 1) | padding
    logits = logits.masked_fill(unseen, -torch.inf)
    return logits.softmax(-1).masked_fill(unseen, 0)


def cake_budgets(
    preferences: Float[Tensor, "layers *batch"],
    keep: int,
    tokens: int | Int64[Tensor, "*batch"],
    window: int = 32,
    exact: bool = False,
) -> Int64[Tensor, "layers *batch"]:
    lengths = _checked(preferences, keep, tokens, window)
    total = (keep - window) * preferences.shape[0]
    room = (lengths - window).clamp(min=0).expand(preferences.shape)
    if exact:
        shares = _shared(preferences, total, room)
    else:
        shares = _adjusted(preferences, total, room)
        shares = torch.where(lengths > keep + window, shares, room)
    return shares + lengths.clamp(max=window)


def cake_cascade(
    preferences: Float[Tensor, "layers *batch"],
    keep: int,
    tokens: int | Int64[Tensor, "*batch"],
    window: int = 32,
    exact: bool = False,
) -> Int64[Tensor, "steps layers *batch"]:
    lengths = _checked(preferences, keep, tokens, window)
    layers = preferences.shape[0]
    budgets = lengths.new_zeros(layers, *preferences.shape)
    room, least = (lengths - window).clamp(min=0)[None], lengths.clamp(max=window)
    evicted, divided = lengths > keep + window, _shared if exact else _adjusted
    shares = room[:0]
    for step in range(layers):
        before, seen = torch.cat([shares, room]), preferences[: step + 1]
        shares = divided(seen, (keep - window) * layers, before)
        shares = shares if exact else torch.where(evicted, shares, before)
        budgets[step, : step + 1] = shares + least
    return budgets


def _checked(preferences: Tensor, keep: int, tokens: int | Tensor, window: int) -> Tensor:
    """Refuse what no budgets can be made of; return the lengths of all rows."""
    errors.importance("preferences", preferences)
    errors.whole("window", window)
    errors.whole("keep", keep, window)
    refuse.lengths(tokens)
    rows = preferences.shape[1:]
    if isinstance(tokens, Tensor):
        errors.shaped("tokens", tokens, rows)
    return torch.as_tensor(tokens, device=preferences.device).expand(rows)


def _adjusted(wishes: Tensor, total: int, room: Tensor) -> Tensor:
    """Divide `total` in proportion to `wishes`, and deal out twice what is over."""
    if not wishes.numel():
        return room
    parts, most = _parts(wishes), room.amax(0)
    quotas = parts * total // parts.sum(0).clamp(min=1)
    shares = _dealt(torch.minimum(quotas, most), (quotas - most).clamp(min=0).sum(0), most)
    return torch.minimum(_dealt(shares, total - shares.sum(0), most), room)


def _dealt(shares: Tensor, left: Tensor, most: Tensor) -> Tensor:
    """Deal `left` places evenly to the shares below `most`, what does not divide to the first."""
    below = shares < most
    count = below.sum(0).clamp(min=1)
    return shares + below * (left // count + (below.cumsum(0) <= left % count))


def _shared(wishes: Tensor, total: int, room: Tensor) -> Tensor:
    """Divide `total` in proportion to `wishes` along the first axis, at most `room` each."""
    layers = wishes.shape[0]
    if not wishes.numel():
        return room
    places = room.sum(0).clamp(max=total)
    parts = _parts(wishes)
    shares = torch.minimum(parts * places // parts.sum(0).clamp(min=1), room)
    free, left = room - shares, places - shares.sum(0)
    # as many whole rounds as fill the emptiest layers, then one place each for the first
    ranked = free.sort(0).values
    after = torch.arange(layers - 1, -1, -1, device=free.device)
    after = after.reshape(-1, *[1] * (wishes.ndim - 1))
    full = ((ranked.cumsum(0) + after * ranked) <= left).sum(0)
    filled = F.pad(ranked.cumsum(0), [0] * (2 * ranked.ndim - 2) + [1, 0])
    spent = filled.gather(0, full[None])[0]
    rounds = (left - spent) // (layers - full).clamp(min=1)
    rounds = torch.where(full == layers, free.amax(0), rounds)
    given = torch.minimum(free, rounds)
    waiting = free > rounds
    given += waiting & (waiting.cumsum(0) <= left - given.sum(0))
    return shares + given


def _parts(wishes: Tensor) -> Tensor:
    """Count each wish in whole parts, 2^24 to the power of two above the largest."""
    exact = wishes.double()
    exponent = torch.frexp(exact.amax(0)).exponent
    half = exponent // 2  # two factors, neither out of range
    return torch.ldexp(torch.ldexp(exact, -half), 24 - exponent + half).round().long()
