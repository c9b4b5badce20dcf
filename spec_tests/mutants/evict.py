"""Mutants of eviction, and of counting what it leaves."""

import torch

import reference
from spec_tests.mutants.make import mutant

EVICTION = "attention/test_evict.py::"


@mutant(
    "evict",
    "entries are gathered best key first",
    killer=EVICTION + "test_each_head_holds_its_kept_entries_in_position_order",
)
def gathered_in_score_order(keys, values, kept):
    """Hand the entries over last first, as a ranking might."""
    cache = reference.evict(keys, values, kept)
    return cache._replace(
        **{
            name: getattr(cache, name).flip(0 if len(cache) == 4 else kept.ndim - 1)
            for name in ("keys", "values", "positions")
        }
    )


@mutant(
    "evict",
    "a prefix is a view of the cache it came from",
    killer=EVICTION + "test_nothing_of_the_cache_stays_alive_through_what_is_left",
)
def view_of_a_prefix(keys, values, kept):
    """Slice instead of copying where the kept entries come first."""
    cache = reference.evict(keys, values, kept)
    count = int(kept.sum(-1).max()) if kept.numel() else 0
    if len(cache) == 4 or not kept[..., :count].all():
        return cache
    return cache._replace(keys=keys[..., :count, :], values=values[..., :count, :])


@mutant(
    "evict",
    "evicted entries are zeroed, and stay",
    killer=EVICTION + "test_equal_counts_give_a_dense_cache_without_waste",
)
def masked_instead_of_evicted(keys, values, kept):
    """Keep every token."""
    return reference.DenseCache(
        keys.masked_fill(~kept[..., None], 0),
        values.masked_fill(~kept[..., None], 0),
        torch.arange(kept.shape[-1]).expand(kept.shape).clone(),
    )


@mutant(
    "stored_bytes",
    "a view costs its own elements only",
    killer=EVICTION + "test_a_view_costs_what_it_keeps_alive",
)
def bytes_of_elements(object):
    """Count elements, not storage."""
    if isinstance(object, torch.Tensor):
        return object.numel() * object.element_size()
    return reference.stored_bytes(object)


@mutant(
    "stored_bytes",
    "a shared storage counts once for each tensor that points into it",
    killer=EVICTION + "test_a_storage_counts_once_however_it_is_reached",
)
def shared_storage_twice(object):
    """Add up the parts of a tuple."""
    parts = object if isinstance(object, tuple) else [object]
    return sum(reference.stored_bytes([part]) for part in parts)
