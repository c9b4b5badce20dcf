"""Mutants of whole compressors."""

import torch

import reference
from reference import HexCache, Scored
from reference.kinds import Scope
from spec_tests.mutants.make import lies, mutant

lies("compress")(
    "padding_is_walked_through",
    "the walk through a row starts at its padding",
    "start = 0 if valid is None else int((~valid[number]).sum())",
    "start = 0",
    "vector:what-is-marked-is-no-padding",
)
lies("compress")(
    "one_gate_for_all_layers",
    "the gate sees what is removed of the cache, though a layer has a budget of its own",
    "ratio=1 - total / max(1, one.scores.numel()) if ratio is None else ratio",
    "ratio=1 - float(torch.as_tensor(keep).double().mean()) / max(1, shields.shape[-1]) "
    "if ratio is None else ratio",
    "hubkv/test_compress.py::test_each_layer_with_a_budget_of_its_own_has_a_gate_of_its_own",
)
lies("hubkv/compress")(
    "no_sinks_of_its_own",
    "sinks are left to the scorer",
    "(mine | (position < sinks))",
    "mine",
    "vector:the-first-real-token-and-the-last-are-marked",
)
lies("graphkv/compress")(
    "marks_of_each_head",
    "each head marks what it protects itself",
    "scored.protected.any(-2, keepdim=True)",
    "scored.protected",
    "vector:what-one-head-protects-is-marked-in-all",
)


@mutant(
    "refine",
    "protected tokens compete with the content",
    killer="attention/test_refinement.py::test_suppression_compares_content_with_content_alone",
)
def protected_compete(
    scored, refinement=None, *, keep, ratio=None, keys=None, values=None, queries=None
):
    """Refine as though nothing were protected."""
    bare = Scored(scored.scores, scored.protected & False)
    vectors = dict(keys=keys, values=values, queries=queries)
    return reference.refine(bare, refinement, keep=keep, ratio=ratio, **vectors)


@mutant(
    "refine",
    "the gate sees the share kept, not the share removed",
    killer="attention/test_refinement.py::test_the_gate_takes_the_share_removed_unless_told_otherwise",
)
def kept_for_removed(
    scored, refinement=None, *, keep, ratio=None, keys=None, values=None, queries=None
):
    """Take the ratio the wrong way round."""
    if ratio is None:
        ratio = min(1.0, keep / max(1, scored.scores.shape[-1]))
    vectors = dict(keys=keys, values=values, queries=queries)
    return reference.refine(scored, refinement, keep=keep, ratio=ratio, **vectors)


@mutant(
    "compress",
    "the ratio is taken of the padded length",
    killer="attention/test_compress.py::test_every_pool_keeps_its_budget_of_real_entries",
)
def padded_length(keys, values, scored, *, keep=None, ratio=None, scope: Scope = "head", **rest):
    """Count padding among the entries."""
    if ratio is not None and rest.get("store") is None:
        sizes = dict(head=1, layer=2, model=3)[scope]
        shape = scored.scores.shape
        pool = shape[-1:] if sizes == 1 else shape[-2:] if sizes == 2 else (shape[0], *shape[-2:])
        keep, ratio = reference.kept_count(torch.Size(pool).numel(), ratio), None
    return reference.compress(keys, values, scored, keep=keep, ratio=ratio, scope=scope, **rest)


@mutant(
    "compress",
    "a graph of queries compares keys",
    killer="attention/test_compress.py::test_a_graph_compares_the_vectors_of_its_kind",
)
def keys_for_queries(keys, values, scored, *, queries=None, **rest):
    """Pass the keys twice."""
    if queries is not None:
        queries = keys
    return reference.compress(keys, values, scored, queries=queries, **rest)


@mutant(
    "compress",
    "padding is scored 0 and competes",
    killer="test_vectors.py::test_vector[compress-padding-does-not-win-where-all-scores-are-zero]",
)
def padding_competes(keys, values, scored, *, valid=None, **rest):
    """Forget the mask where it comes to choosing."""
    return reference.compress(keys, values, scored, **rest)


@mutant(
    "compress",
    "padding is refined along with the content",
    killer="test_vectors.py::test_vector[compress-padding-is-nobodys-neighbour]",
)
def padding_refined(keys, values, scored, *, valid=None, refinement=None, **rest):
    """Refine over the padded rows, then choose without them."""
    if valid is None or rest.get("store") is not None or refinement is None:
        return reference.compress(keys, values, scored, valid=valid, refinement=refinement, **rest)
    vectors, keep = dict(keys=keys, values=values), scored.scores.shape[-1] // 2
    refined = reference.refine(scored, refinement, keep=keep, **vectors)
    refined = refined.clamp(min=-1.0)  # what a signal evicted is behind the rest
    return reference.compress(keys, values, Scored(refined, scored.protected), valid=valid, **rest)


@mutant(
    "compress",
    "the best by raw scores stay, whatever the refinement",
    killer="attention/test_compress.py::test_without_padding_it_is_three_calls",
)
def raw_ranking(keys, values, scored, *, refinement=None, **rest):
    """Drop the refinement."""
    return reference.compress(keys, values, scored, **rest)


@mutant(
    "compress",
    "the cache is a view of what it was made from",
    killer="attention/test_compress.py::test_nothing_of_the_cache_stays_alive",
)
def a_view(keys, values, scored, **rest):
    """Keep all keys alive behind those that stay."""
    cache = reference.compress(keys, values, scored, **rest)
    if isinstance(cache, HexCache):
        return cache
    whole = torch.cat([cache.keys.flatten(), keys.flatten()])
    return cache._replace(keys=whole[: cache.keys.numel()].view(cache.keys.shape))


@mutant(
    "compress",
    "HEX takes the best of any head instead of the sum",
    killer="test_vectors.py::test_vector[compress-heads-are-summed-before-one-set-is-chosen]",
)
def best_of_any_head(keys, values, scored, *, store=None, **rest):
    """Reduce heads by their maximum."""
    if store is not None:
        best = scored.scores.amax(-2, keepdim=True).expand(scored.scores.shape)
        scored = Scored(best, scored.protected)
    return reference.compress(keys, values, scored, store=store, **rest)


@mutant(
    "compress",
    "protected tokens are not kept exactly inside HEX",
    killer="attention/test_compress_hex.py::"
    "test_heavy_hitters_stand_beside_protected_tokens_and_the_window",
)
def unprotected_in_hex(keys, values, scored, *, store=None, **rest):
    """Protect in one store and not in the other."""
    if store is not None:
        scored = Scored(scored.scores, scored.protected & False)
    return reference.compress(keys, values, scored, store=store, **rest)


@mutant(
    "compress",
    "padding stretches the range of the channels in HEX",
    killer="attention/test_compress_hex.py::"
    "test_padding_of_whole_blocks_changes_nothing_that_is_stored",
)
def padding_in_the_range(keys, values, scored, *, valid=None, store=None, **rest):
    """Blank padding with a number that no key has."""
    if valid is None or store is None:
        return reference.compress(keys, values, scored, valid=valid, store=store, **rest)
    blank = keys.masked_fill(~valid[..., None, :, None], -100.0)
    return reference.compress(blank, values, scored, store=store, **rest)
