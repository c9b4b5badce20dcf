"""Attention over heads of different lengths, in blocks, without padding them to the longest."""

import torch
from torch import Tensor

from reference.precision import widen

# Entries of a head, and queries, that are read at one time.
ENTRIES, QUERIES = 256, 256

# Output and log of the sum of exponentials of one part of a softmax.
Part = tuple[Tensor, Tensor]


def ragged_attention(
    query: Tensor,
    old: tuple[Tensor, Tensor, Tensor],
    new: tuple[Tensor, Tensor],
    valid: Tensor | None,
    scale: float,
) -> Tensor:
    """Attend to all of `old`, and causally to `new`, whose last token is the last query's.

    `old` is keys and values, one head's entries after another's, and where each head starts;
    `valid` tells which of `new` are no padding.
    """
    batch, query_heads, queries, width = query.shape
    heads = new[0].shape[1]
    grouped = query.unflatten(1, (heads, -1)).flatten(0, 1)
    keys, values = (x.flatten(0, 1) for x in new)
    flags = None if valid is None else valid.repeat_interleave(heads, 0)
    out = torch.empty_like(grouped)
    for start in range(0, queries, QUERIES):
        some = grouped[:, :, start : start + QUERIES]
        first = keys.shape[1] - queries + start
        before = _ragged(some, *old, scale)
        after = _causal(some, keys, values, flags, first, scale)
        out[:, :, start : start + QUERIES] = _joined(before, after)[0].to(query.dtype)
    return out.reshape(batch, query_heads, queries, width)


def _ragged(query: Tensor, keys: Tensor, values: Tensor, offsets: Tensor, scale: float) -> Part:
    """Attend to every entry of a head."""
    counts = offsets.diff()
    out = torch.zeros_like(widen(query))
    weight = out.new_full(out.shape[:-1], -torch.inf)
    for start in range(0, int(counts.max()), ENTRIES):
        heads = (counts > start).nonzero()[:, 0]
        longest = min(ENTRIES, int(counts.max()) - start)
        column = start + torch.arange(longest, device=keys.device)
        visible = column < counts[heads, None]
        index = torch.where(visible, offsets[heads, None] + column, 0)
        here = _partial(query[heads], keys[index], values[index], visible[:, None, None], scale)
        out[heads], weight[heads] = _joined((out[heads], weight[heads]), here)
    return out, weight


def _causal(
    query: Tensor, keys: Tensor, values: Tensor, valid: Tensor | None, first: int, scale: float
) -> Part:
    """Attend to the tokens up to each query's own, the first of which is token `first`."""
    seen = first + query.shape[2]
    at = torch.arange(first, seen, device=query.device)[:, None]
    column = torch.arange(seen, device=query.device)
    visible = (column <= at)[None, None]
    if valid is not None:
        visible = visible & valid[:, None, None, :seen] | (column == at)
    return _partial(query, keys[:, :seen], values[:, :seen], visible, scale)


def _partial(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float) -> Part:
    """Attend to one block, whose every query sees something."""
    keys, values = widen(keys)[:, None], widen(values)[:, None]
    logits = (widen(query) @ keys.transpose(-1, -2) * scale).masked_fill(~visible, -torch.inf)
    weight = logits.logsumexp(-1)
    return (logits - weight[..., None]).exp() @ values, weight


def _joined(one: Part, other: Part) -> Part:
    """Join two parts of a softmax, the second of which has weight."""
    weight = torch.logaddexp(one[1], other[1])
    shares = ((part[1] - weight).exp()[..., None] for part in (one, other))
    out = sum(share * part[0] for share, part in zip(shares, (one, other), strict=True))
    assert isinstance(out, Tensor)
    return out, weight
