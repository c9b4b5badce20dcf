"""Mutants of eviction, and of counting the bytes of its result."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("evict")
mutant("""
test_each_head_holds_its_kept_entries_in_position_order
  gathered_in_score_order: entries are copied in reverse order, as in a ranking by score
  - kept[head].nonzero()[:, 0]
  + kept[head].nonzero()[:, 0].flip(0)
test_a_view_costs_what_it_keeps_alive
  bytes_of_elements: only the elements of a view are counted
  - storages[storage._cdata] = storage.nbytes()
  + storages[storage._cdata] = tensor.numel() * tensor.element_size()
test_a_storage_counts_once_however_it_is_reached
  shared_storage_twice: a shared storage counts once for each tensor that points into it
  - storages[storage._cdata] = storage.nbytes()
  + storages[len(storages)] = storage.nbytes()
test_nothing_of_the_cache_stays_alive_through_what_is_left
  view_of_a_prefix: the kept entries are a view of the cache
  -         keys=left.keys.reshape(*heads, count, width)
  +         keys=keys[..., :count, :]
  +         if kept[..., :count].all()
  +         else left.keys.reshape(*heads, count, width)
test_equal_counts_give_a_dense_cache_without_waste
  masked_instead_of_evicted: evicted entries are set to zero, and stay in memory
  +     keys, values = keys * kept[..., None], values * kept[..., None]
  +     kept = torch.ones_like(kept)
        counts = kept.sum(-1).flatten()
""")
