"""Mutants of compression while decoding."""

import torch

import reference
from reference.kinds import Scope
from spec_tests.mutants.make import mutant

STREAM = (
    "attention/test_decoding_stream.py::"
    "test_any_sequence_of_steps_keeps_order_values_counts_and_the_protected"
)


@mutant(
    "decoding_start",
    "positions count from the start of the padding",
    killer="test_vectors.py::test_vector[compress-positions-count-from-the-first-real-token]",
)
def padded_positions(keys, values, scores, config, valid=None):
    """Shift every row by its padding."""
    cache = reference.decoding_start(keys, values, scores, config, valid)
    if valid is None or valid.ndim > 1:
        return cache
    start = int((~valid).sum())
    stored = cache.stored._replace(positions=cache.stored.positions + start)
    return cache._replace(stored=stored)


@mutant(
    "decoding_start",
    "a long prompt waits for the first interval",
    killer="attention/test_decoding.py::test_a_prompt_is_compressed_as_any_cache_is",
)
def prompt_waits(keys, values, scores, config, valid=None):
    """Keep all of the prompt."""
    wide = config._replace(target=max(config.target, scores.shape[-1]))
    return reference.decoding_start(keys, values, scores, wide, valid)._replace(config=config)


@mutant("decoding_append", "tokens that wait are dropped by a compression", killer=STREAM)
def pending_lost(cache, keys, values, scores, mass=None):
    """Forget what had not been compressed when the interval filled up."""
    after = reference.decoding_append(cache, keys, values, scores, mass)
    room = cache.config.interval - cache.pending_scores.shape[-1]
    if keys.shape[-2] > room > 0 and after.pending_scores.shape[-1]:
        none = slice(0, 0)
        after = after._replace(
            pending_keys=after.pending_keys[..., none, :].clone(),
            pending_values=after.pending_values[..., none, :].clone(),
            pending_scores=after.pending_scores[..., none].clone(),
        )
    return after


@mutant(
    "decoding_append",
    "a chunk is compressed as it came, whatever its size",
    killer="attention/test_decoding.py::test_it_holds_what_a_list_of_entries_would",
)
def whole_chunks(cache, keys, values, scores, mass=None):
    """Wait for the end of the chunk."""
    held = cache.pending_scores.shape[-1] + scores.shape[-1]
    if held <= cache.config.interval:
        return reference.decoding_append(cache, keys, values, scores, mass)
    longer = cache._replace(config=cache.config._replace(interval=held))
    return reference.decoding_append(longer, keys, values, scores, mass)._replace(
        config=cache.config
    )


@mutant(
    "decoding_append",
    "the gate sees the last update alone",
    killer="attention/test_decoding_choices.py::test_the_gate_sees_all_that_was_removed_of_the_text",
)
def local_gate(cache, keys, values, scores, mass=None):
    """Take the ratio from the cache before it shrinks."""
    config = cache.config
    if config.ratio is None:
        local = config.interval / max(1, config.target + config.interval)
        cache = cache._replace(config=config._replace(ratio=local))
    after = reference.decoding_append(cache, keys, values, scores, mass)
    return after._replace(config=config)


@mutant(
    "decoding_append",
    "refined scores are stored, and refined again",
    killer="attention/test_decoding.py::test_raw_scores_survive_refinement",
)
def refined_scores_stored(cache, keys, values, scores, mass=None):
    """Store what the last refinement made of the scores."""
    after = reference.decoding_append(cache, keys, values, scores, mass)
    return after._replace(scores=after.scores * 0.5)


@mutant(
    "decoding_append",
    "mass is added after the compression",
    killer="test_vectors.py::test_vector"
    "[compress-what-waits-is-added-to-what-stayed-and-best-of-both-stays]",
)
def mass_too_late(cache, keys, values, scores, mass=None):
    """Compress first."""
    return reference.decoding_append(cache, keys, values, scores)


@mutant(
    "decoding_append",
    "positions are those of the compacted cache",
    killer="attention/test_decoding.py::test_it_holds_what_a_list_of_entries_would",
)
def compacted_positions(cache, keys, values, scores, mass=None):
    """Number what is left."""
    after = reference.decoding_append(cache, keys, values, scores, mass)
    place = after.stored.positions
    if place.ndim == 1 or scores.shape[-1] == 0:
        return after
    renumbered = torch.arange(place.shape[-1]).expand(place.shape).clone()
    return after._replace(stored=after.stored._replace(positions=renumbered))


@mutant(
    "decoding_append",
    "sinks are the first entries of the cache, not of the text",
    killer="attention/test_decoding_choices.py::test_sinks_are_so_by_their_first_position_and_stay",
)
def sinks_of_the_cache(cache, keys, values, scores, mass=None):
    """Protect nothing by its position."""
    config = cache.config
    loose = cache._replace(config=config._replace(sinks=0))
    return reference.decoding_append(loose, keys, values, scores, mass)._replace(config=config)


@mutant(
    "decoding_append",
    "neighbours are those of the text, whatever was asked",
    killer="attention/test_decoding_choices.py::test_neighbours_are_so_in_the_cache_or_in_the_text",
)
def always_the_text(cache, keys, values, scores, mass=None):
    """Read the wrong positions."""
    config = cache.config
    text = cache._replace(config=config._replace(original_positions=True))
    return reference.decoding_append(text, keys, values, scores, mass)._replace(config=config)


@mutant(
    "decoding_append",
    "the recent window is a fiftieth of the cache before it shrinks",
    killer="attention/test_decoding_choices.py::test_the_window_is_a_fiftieth_of_all_tokens_seen",
)
def window_of_the_cache(cache, keys, values, scores, mass=None):
    """Take the wrong length."""
    config = cache.config
    held = cache._replace(config=config._replace(length="held"))
    return reference.decoding_append(held, keys, values, scores, mass)._replace(config=config)


@mutant(
    "DecodingConfig",
    "each head keeps its own target, which leaves head weights idle",
    killer="attention/test_decoding_choices.py"
    "::test_head_weights_decide_what_decoding_keeps_by_default",
)
def decoding_head_by_head(*args, scope: Scope = "head", **settings):
    """Change the default."""
    return reference.DecodingConfig(*args, scope=scope, **settings)


@mutant(
    "DecodingConfig",
    "each layer has a budget of its own",
    killer="attention/test_decoding_choices.py::test_entries_of_all_layers_compete_by_default",
)
def decoding_layer_by_layer(*args, scope: Scope = "layer", **settings):
    """Change the default."""
    return reference.DecodingConfig(*args, scope=scope, **settings)


@mutant(
    "decoding_read",
    "pending tokens come first",
    killer=STREAM,
)
def pending_first(cache):
    """Join in the wrong order."""
    view, pending = reference.decoding_read(cache), cache.pending_scores.shape[-1]
    axes = (-2, -2, -1, -1, -1)
    return view._make(x.roll(pending, axis) for x, axis in zip(view, axes, strict=True))
