"""Other correct ways to select and to compress as GraphKV does."""

import reference
from spec_tests.variants.registry import register_variant


@register_variant("graphkv_select")
def by_select(keys, values, scored, refinement, *, keep=None, ratio=None, length=None,
              queries=None, valid=None):  # fmt: skip
    """`select`, with capped neighbours and the union of the tokens that a layer's heads protect."""
    if length is not None:
        most = min(refinement.count, length // 1000)
        refinement = refinement._replace(count=most, adaptive=False)
    else:
        refinement = refinement._replace(adaptive=True)
    if not refinement.per_head:
        joined = scored.protected.any(-2, keepdim=True) | scored.protected
        scored = scored._replace(protected=joined)
    if keep is not None and not isinstance(keep, int):
        heads = scored.scores.shape[:-1]
        keep = keep.view(*keep.shape, *[1] * (len(heads) - keep.ndim)).repeat(
            *[1] * keep.ndim, *heads[keep.ndim :]
        )
    return reference.select(
        keys, values, scored, keep=keep, ratio=ratio, refinement=refinement, queries=queries,
        valid=valid,
    )  # fmt: skip


@register_variant("graphkv_compress")
def in_two_steps(keys, values, scored, refinement, *, keep=None, ratio=None, length=None,
                 queries=None, valid=None, store=None):  # fmt: skip
    """Select and evict, or store with `compress`; neighbours are capped."""
    if store is None:
        kept = reference.graphkv_select(
            keys, values, scored, refinement, keep=keep, ratio=ratio, length=length,
            queries=queries, valid=valid,
        )  # fmt: skip
        return reference.evict(keys, values, kept)
    refinement = refinement._replace(adaptive=length is None)
    if length is not None:
        count = reference.neighbour_count(refinement.count, length)
        refinement = refinement._replace(count=count)
    if not refinement.per_head:
        joined = scored.protected | scored.protected.any(-2, keepdim=True)
        scored = scored._replace(protected=joined)
    if keep is not None and not isinstance(keep, int):
        pools = scored.scores.shape[:-2]
        keep = keep.reshape(*keep.shape, *[1] * (len(pools) - keep.ndim)).expand(pools)
    return reference.compress(
        keys, values, scored, keep=keep, ratio=ratio, refinement=refinement, queries=queries,
        valid=valid, store=store,
    )  # fmt: skip
