"""Scorers that need queries and keys alone, blocks of queries at a time."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector._window import drawn
from reference import Scored, attention_errors, errors
from reference.precision import widen
from reference.scorers import errors as refuse

# queries at a time: what they attend with never grows with the number of queries
QUERIES = 128
POOLINGS = ("average", "max")


def knorm(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    shift: bool = False,
) -> Scored:
    errors.floating("keys", keys, 3)
    errors.finite("keys", keys)
    if valid is not None:
        refuse.padding(valid, (*keys.shape[:-3], keys.shape[-2]))
    # contiguous: a row is summed in the same order whatever lies beside it
    keys = widen(keys).contiguous()
    lengths = (keys * keys).sum(-1).sqrt_()
    errors.in_range("keys", lengths)
    if valid is not None:
        lengths.masked_fill_(~valid[..., None, :], 0)
    longest = lengths.amax(-1, keepdim=True) if shift and lengths.shape[-1] else 0
    scores = longest - lengths
    if valid is not None and shift:
        scores.masked_fill_(~valid[..., None, :], 0)
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


def h2o_mass(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    mass: Float[Tensor, "*batch kv_heads before"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    attention_errors.attendable(queries, keys, True)
    tokens, count = keys.shape[-2], queries.shape[-2]
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    total = keys.new_zeros(keys.shape[:-1], dtype=exact)
    if mass is not None:
        refuse.carried(mass, keys)
        total = total.to(torch.promote_types(exact, mass.dtype))
        total[..., : mass.shape[-1]] = mass
    if valid is not None:
        refuse.padding(valid, (*keys.shape[:-3], tokens))
        total.masked_fill_(~valid[..., None, :], 0)
    for start in range(0, count, QUERIES):
        stop = min(count, start + QUERIES)
        seen = tokens - count + stop
        real = None if valid is None else valid[..., :seen]
        block = drawn(queries[..., start:stop, :], keys[..., :seen, :], real, exact)
        total[..., :seen] += block.sum(-2)
    return total


def h2o(
    mass: Float[Tensor, "*batch kv_heads tokens"],
    keep: int,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    recent: int | None = None,
) -> Scored:
    errors.importance("mass", mass, 2)
    errors.whole("keep", keep)
    recent = keep // 2 if recent is None else recent
    errors.whole("recent", recent, 0, keep)
    scores, tokens = widen(mass).clone(), mass.shape[-1]
    protected = torch.zeros_like(scores, dtype=torch.bool)
    protected[..., max(0, tokens - recent) :] = True
    if valid is not None:
        refuse.padding(valid, (*mass.shape[:-2], tokens))
        padding = ~valid[..., None, :]
        scores.masked_fill_(padding, 0)
        protected.masked_fill_(padding, False)
    return Scored(scores, protected)


def snapkv(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    window: int = 32,
    kernel: int = 5,
    pooling: str = "average",
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    attention_errors.attendable(queries, keys, True)
    errors.whole("window", window, 1)
    refuse.odd("kernel", kernel)
    errors.one_of("pooling", pooling, POOLINGS)
    tokens, count = keys.shape[-2], queries.shape[-2]
    refuse.observers(count, window, tokens)
    if valid is not None:
        refuse.padding(valid, (*keys.shape[:-3], tokens))
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    content = max(0, tokens - window)
    protected[..., content:] = True
    if content:
        observed = drawn(queries[..., count - window :, :], keys, valid, exact)[..., :content]
        scores[..., :content] = _pooled(observed, kernel, pooling)
    if valid is not None:
        padding = ~valid[..., None, :]
        scores.masked_fill_(padding, 0)
        protected.masked_fill_(padding, False)
    return Scored(scores, protected)


def _pooled(observed: Tensor, kernel: int, pooling: str) -> Tensor:
    """Pool along tokens, then average over the group; a sum may be taken before an average."""
    group = max(1, observed.shape[-2])
    if pooling == "average":
        total = observed.sum(-2)
        pooled = F.avg_pool1d(total.flatten(0, -2)[:, None], kernel, 1, kernel // 2).view(
            total.shape
        )
        return pooled / group
    pooled = F.max_pool1d(observed.flatten(0, -2)[:, None], kernel, 1, kernel // 2)
    return pooled.view(observed.shape).sum(-2) / group


def pyramidkv_budgets(
    keep: int,
    layers: int,
    tokens: int | Int64[Tensor, "*batch"],
    window: int = 32,
    beta: int = 20,
    exact: bool = False,
) -> Int64[Tensor, "layers *batch"]:
    errors.whole("window", window)
    errors.whole("keep", keep, window)
    errors.whole("layers", layers, 1)
    refuse.lengths(tokens)
    errors.whole("beta", beta, 1)
    lengths = torch.as_tensor(tokens)
    room = (lengths - window).clamp(min=0)
    mean = room.clamp(max=keep - window)
    even = (lengths < 2 * (keep - window)) | (layers == 1)
    most = torch.where(even, mean, torch.minimum(2 * mean - mean // beta, room))
    drop, steps = 2 * (most - mean), max(1, layers - 1)
    layer = torch.arange(layers, device=lengths.device).view(-1, *[1] * lengths.ndim)
    if exact:
        # the line is a fraction of `steps`: its remainders are whole numbers
        line = most * steps - layer * drop
        share, rest = line // steps, line % steps
        order = rest.argsort(dim=0, descending=True, stable=True).argsort(dim=0)
        share = share + (order < rest.sum(0) // steps)
    else:
        share = most - layer * (drop // steps)
    return share + lengths.clamp(max=window)


def streaming_llm(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    sinks: int = 4,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    errors.floating("keys", keys, 3)
    errors.whole("sinks", sinks)
    rows = (*keys.shape[:-3], keys.shape[-2])
    valid = keys.new_ones(rows, dtype=torch.bool) if valid is None else valid
    refuse.padding(valid, rows)
    position = valid.cumsum(-1)[..., None, :].expand(keys.shape[:-1])
    protected = valid[..., None, :] & (position <= sinks)
    return Scored(position.to(widen(keys.new_empty(0)).dtype), protected)
