"""Mutants of compression while decoding."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("decoding_compression")
mutant("""
vector:positions-count-from-the-first-real-token
  padded_positions: positions count from the start of the padding
  - positions = position.clamp(min=-1)
  + positions = (position + (position >= 0) * (tokens - seen[..., None])).clamp(min=-1)
test_a_prompt_is_compressed_as_any_cache_is
  prompt_waits: a long prompt is not compressed before the first interval is full
  - return compress_to_target(view, seen, config)
  + low = config._replace(target=max(1, tokens))
  +     return compress_to_target(view, seen, low)._replace(config=config)
decoding_compression/test_stream.py::test_any_sequence_of_steps_keeps_order_values_counts_and_the_protected
  pending_lost: the tokens of a chunk after a compression are dropped
  -         if cache.pending_scores.shape[-1] == cache.config.interval:
  +         if cache.pending_scores.shape[-1] == cache.config.interval:
  +             keys = keys[..., :0, :]
  pending_first: pending keys come first
  - [laid_out(stored.keys, cache, here), cache.pending_keys]
  + [cache.pending_keys, laid_out(stored.keys, cache, here)]
test_it_holds_what_a_list_of_entries_would
  whole_chunks: a whole chunk is compressed at once, whatever its size
  -         if cache.pending_scores.shape[-1] == cache.config.interval:
  +         if keys.shape[-2]:
  +             cache = add_pending(cache, keys, values, scores)
  +             keys = keys[..., :0, :]
  +         if cache.pending_scores.shape[-1] >= cache.config.interval:
  compacted_positions: positions are those of the compacted cache
  - left._replace(positions=view.positions[kept].view(shape))
  + left
test_the_gate_sees_all_that_was_removed_of_the_text
  local_gate: the gate takes the removed share of the last update alone
  - max(0.0, 1 - config.target / max(1, tokens))
  + config.interval / (config.target + config.interval)
test_raw_scores_survive_refinement
  refined_scores_stored: refined scores are stored, and refined again
  -         view.scores[kept].view(shape)
  +         refine(Scored(view.scores, ~view.present), config.refinement, keep=config.target,
  +                keys=view.keys, values=view.values)[kept].view(shape)
vector:what-waits-is-added-to-what-stayed-and-best-of-both-stays
  mass_too_late: mass is not added before a compression
  -     if mass is not None:
  +     if mass is not None and cache.config.interval > (
  +         cache.pending_scores.shape[-1] + keys.shape[-2]
  +     ):
test_sinks_are_so_by_their_first_position_and_stay
  sinks_of_the_cache: sinks are protected in the prompt alone
  - at_ends(positions, tokens, config.sinks, window)
  + at_ends(positions, tokens, config.sinks * (tokens <= positions.shape[-1]), window)
test_neighbours_are_so_in_the_cache_or_in_the_text
  always_the_text: neighbours are always those in the text
  - if not config.original_positions or isinstance
  + if isinstance
test_the_window_is_a_fiftieth_of_all_tokens_seen
  window_of_the_cache: the recent window is 2 % of the cache before it shrinks
  - tokens if config.length == "seen" else int
  + int
vector:as-many-entries-as-heads-and-as-long-as-wide
  dense_by_its_shape: a ragged cache counts as dense if its lengths are equal
            return part
  +     if part.shape == here.shape:
  +         return part[..., None, :].expand(*here.shape, *part.shape[1:])
test_head_weights_decide_what_decoding_keeps_by_default
  decoding_head_by_head: each head has its own budget, so that head weights change nothing
  - scope: Scope = "model"
  + scope: Scope = "head"
test_entries_of_all_layers_compete_by_default
  decoding_layer_by_layer: each layer has its own budget
  - scope: Scope = "model"
  + scope: Scope = "layer"
""")
