"""Other correct ways to compress: row after row, each without its padding."""

from fractions import Fraction
from itertools import product
from typing import Any

import torch

import reference
from spec_tests.evict.variants import by_boolean_indexing
from spec_tests.retain.variants import sort_each_pool, subtract_removed_count
from spec_tests.variants.registry import register_variant


def each_row(scored, scope, valid):
    """Yield the index of each row of a batch, and its real tokens."""
    model = scope == "model"
    for row in product(*map(range, scored.scores.shape[int(model) : -2])):
        start = 0 if valid is None else int((~valid[row]).sum())
        layers = (slice(None),) if model else ()
        yield row, (*layers, *row, slice(None), slice(start, None))


def compared(refinement, at, keys, values, queries):
    """Return the vectors of a row that its graph compares."""
    if not isinstance(refinement, reference.GraphSettings):
        return {}
    vectors = dict(keys=keys, queries=queries, values=values)
    kinds = {"k": "keys", "q": "queries", "v": "values"}
    wanted = {"keys"} | {kinds[letter] for letter in refinement.kind}
    return {name: x[at] for name, x in vectors.items() if name in wanted}


def budget_of(keep, ratio, row, size):
    """Return the budget of a pool of that many real entries, or of each pool of a row."""
    if ratio is not None:
        return torch.tensor(subtract_removed_count(size, ratio))
    return (keep[row] if isinstance(keep, torch.Tensor) else torch.tensor(keep)).clamp(max=size)


@register_variant("select")
def row_by_row(
    keys, values, scored, *, keep=None, ratio=None, scope="head", refinement=None, queries=None,
    valid=None,
):  # fmt: skip
    """Refine each row and keep its best tokens, in Python."""
    kept = torch.zeros_like(scored.protected)
    axes = {"head": 1, "layer": 2, "model": 3}[scope]
    for row, at in each_row(scored, scope, valid):
        one = reference.Scored(scored.scores[at], scored.protected[at])
        pools = one.protected.flatten(-axes)
        size, count = pools.shape[-1], pools.shape[:-1].numel()
        budgets = budget_of(keep, ratio, row, size).expand(pools.shape[:-1]).clone()
        total, heads = int(budgets.sum()), one.protected.shape[:-1].numel()
        removed = 1 - total / max(1, size * count) if ratio is None else ratio
        refined = reference.refine(
            one, refinement, keep=total // max(1, heads), ratio=removed,
            **compared(refinement, at, keys, values, queries),
        )  # fmt: skip
        kept[at] = sort_each_pool(refined, one.protected, keep=budgets, scope=scope)
    return kept


@register_variant("compress")
def select_and_evict(
    keys, values, scored, *, keep=None, ratio=None, scope="head", refinement=None, queries=None,
    valid=None, store=None,
):  # fmt: skip
    """Select, then evict; for HEX, build the only block of the cache."""
    settings: Any = dict(
        keep=keep, ratio=ratio, scope=scope, refinement=refinement, queries=queries
    )
    if store is None:
        kept = row_by_row(keys, values, scored, valid=valid, **settings)
        return by_boolean_indexing(keys, values, kept)
    return into_hex(keys, values, scored, store, valid, **settings)


def into_hex(
    keys, values, scored, store, valid, keep=None, ratio=None, scope="head", refinement=None,
    queries=None,
):  # fmt: skip
    """Keep one set of tokens for all heads exactly, and quantise the rest of the span."""
    tokens = keys.shape[-2]
    residual = store.recent if store.carry_recent else 0
    span = max(0, tokens - residual) // store.block * store.block
    scores = scored.scores.to(torch.promote_types(scored.scores.dtype, torch.float32))
    raw = scores
    if store.normalize:
        scores = scores / (tokens - torch.arange(tokens))
    scored = reference.Scored(scores, scored.protected)
    share = 1 - Fraction(str(store.heavy)) if keep is None and ratio is None else ratio
    kept = torch.zeros(*keys.shape[:-3], span, dtype=torch.bool)
    for row, at in each_row(scored, scope, valid):
        one = reference.Scored(scored.scores[at], scored.protected[at])
        real = max(0, one.scores.shape[-1] - (tokens - span))
        layers = one.scores.shape[:-2].numel()
        heavy = int(budget_of(keep, share, row, layers * real))
        removed = 1 - heavy / max(1, layers * real) if share is None else float(share)
        refined = reference.refine(
            one, refinement, keep=heavy // max(1, layers), ratio=removed,
            **compared(refinement, at, keys, values, queries),
        )  # fmt: skip
        recent = torch.arange(real) >= real - (0 if store.carry_recent else store.recent)
        apart = one.protected[..., :real].any(-2)
        recent = recent.expand(apart.shape)
        aside = apart | recent if store.outside_recent else apart
        mass = refined.sum(-2)[..., :real].flatten()
        many = min(mass.numel(), int(aside.sum()) + heavy)
        best = sort_each_pool(mass, aside.flatten(), keep=many).view(apart.shape)
        where = torch.zeros(*apart.shape[:-1], span, dtype=torch.bool)
        where[..., span - real :] = best | recent
        kept[at[:-2]] = where
    return stored(keys, values, raw, kept, valid, store, span)


def stored(keys, values, scores, kept, valid, store, span):
    """Return a cache of one block, in which padding is never kept and widens no range."""
    heads, tokens, width = keys.shape[-3:]
    real = torch.ones(tokens, dtype=torch.bool) if valid is None else valid
    real = real[..., None, :].expand(keys.shape[:-1])
    keys, values = (x.masked_fill(~real[..., None], 0) for x in (keys, values))
    mass, blocks = scores.masked_fill(~real, 0).sum(-2), ()
    if span:
        channels = heads * width
        static = torch.full((span, channels), store.density == 1)
        if 0 < store.density < 1:
            how = store.seed, store.near, store.tile, store.block
            static = reference.expander_mask(span, channels, store.density, *how)
        there = real[..., :span, None]
        coded = there & ~reference.hex_mask(static, kept, heads)
        low = keys[..., :span, :].masked_fill(~coded, torch.inf).amin(-2, keepdim=True)
        low = low.masked_fill(low == torch.inf, 0)
        inside = torch.where(there, keys[..., :span, :], low)
        settings = store.bits, store.value_group, store.scales
        blocks = (reference.hex_compress(inside, values[..., :span, :], static, kept, *settings),)
    append, oracle = store.mode == "append", store.mode == "oracle"
    return reference.HexCache(
        store, blocks, keys[..., span:, :].clone(), values[..., span:, :].clone(),
        mass[..., span:].clone(), mass[..., : 0 if append else span].clone(),
        keys[..., : span if oracle else 0, :].clone(),
        values[..., : span if oracle else 0, :].clone(),
    )  # fmt: skip
