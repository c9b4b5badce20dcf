"""Mutants of HubKV and GraphKV from scores to a cache."""

import torch

import reference
from reference import GraphSettings, HubSettings, Scored
from reference.kinds import Scope
from spec_tests.mutants.make import mutant


@mutant(
    "hubkv_compress",
    "sinks are counted from the start of the padding",
    killer="test_vectors.py::test_vector[compress-the-first-real-token-is-the-sink]",
)
def padded_sinks(keys, values, scored, *, sinks=4, recent=None, valid=None, **rest):
    """Let padding be a sink."""
    place = torch.arange(scored.scores.shape[-1])
    if valid is None:
        return reference.hubkv_compress(
            keys, values, scored, sinks=sinks, recent=recent, valid=valid, **rest
        )
    protected = scored.protected | (place < sinks)
    return reference.hubkv_compress(
        keys, values, Scored(scored.scores, protected), sinks=0, recent=recent, valid=valid, **rest
    )


@mutant(
    "hubkv_compress",
    "the budget grows where the window does not fit",
    killer="hubkv/test_compress.py::test_the_window_gives_way_and_says_so",
)
def budget_gives_way(
    keys, values, scored, *, keep=None, scope: Scope = "model", recent=None, **rest
):
    """Make room for the window."""
    if isinstance(keep, int) and recent is not None:
        heads = dict(head=1, layer=scored.scores.shape[-2])
        pool = heads.get(scope, scored.scores.shape[0] * scored.scores.shape[-2])
        need = pool * (recent + rest.get("sinks", 4))
        keep = min(pool * scored.scores.shape[-1], max(keep, need))
    return reference.hubkv_compress(
        keys, values, scored, keep=keep, scope=scope, recent=recent, **rest
    )


@mutant(
    "hubkv_compress",
    "every head is a pool of its own unless told otherwise",
    killer="hubkv/test_compress.py::test_layers_compete_with_each_other_by_default",
)
def head_by_head(keys, values, scored, *, scope: Scope = "head", refinement=None, **rest):
    """Default to the wrong scope."""
    refinement = refinement or HubSettings()
    return reference.hubkv_compress(
        keys, values, scored, scope=scope, refinement=refinement, **rest
    )


@mutant(
    "hubkv_compress",
    "without padding it says that all tokens are real, which only append mode takes",
    killer="hubkv/test_compress.py::test_in_hex_the_ends_need_no_budget",
)
def always_padded(
    keys, values, scored, *, scope: Scope = "model", refinement=None, valid=None, **rest
):
    """Hand on a mask that nobody gave."""
    if valid is None and rest.get("store") is not None:
        rows = scored.scores.shape[1 if scope == "model" else 0 : -2]
        valid = torch.ones(*rows, scored.scores.shape[-1], dtype=torch.bool)
    refinement = refinement or HubSettings()
    return reference.hubkv_compress(
        keys, values, scored, scope=scope, refinement=refinement, valid=valid, **rest
    )


@mutant(
    "graphkv_compress",
    "each head protects its own tokens, though the layer keeps one set",
    killer="test_vectors.py::test_vector[compress-a-token-protected-by-one-head-is-kept-by-all]",
)
def protected_per_head(keys, values, scored, refinement, *, length=None, **rest):
    """Leave the mask of each head as it is."""
    rest.pop("length", None)
    if isinstance(rest.get("keep"), torch.Tensor):
        return reference.graphkv_compress(keys, values, scored, refinement, length=length, **rest)
    return reference.compress(keys, values, scored, refinement=refinement, **rest)


@mutant(
    "graphkv_compress",
    "the first layer's budget serves all",
    killer="graphkv/test_compress.py::test_each_layer_has_a_budget_of_its_own",
)
def first_budget(keys, values, scored, refinement, *, keep=None, **rest):
    """Read one number of the tensor."""
    if isinstance(keep, torch.Tensor) and len(keep):
        keep = int(keep[0])
    return reference.graphkv_compress(keys, values, scored, refinement, keep=keep, **rest)


@mutant(
    "graphkv_compress",
    "a short input has as many neighbours as a long one unless its length is given",
    killer="graphkv/test_compress.py::test_an_input_below_a_thousand_tokens_has_no_neighbours",
)
def uncapped(keys, values, scored, refinement, *, length=None, **rest):
    """Take the number set beforehand."""
    length = 1000 * refinement.count if length is None else length
    return reference.graphkv_compress(keys, values, scored, refinement, length=length, **rest)


@mutant(
    "graphkv_compress",
    "padding counts into the length of a row",
    killer="graphkv/test_compress.py"
    "::test_each_row_has_neighbours_by_its_own_thousands_without_its_padding",
)
def longest_row(keys, values, scored, refinement, *, length=None, **rest):
    """Take the length of the batch."""
    length = keys.shape[-2] if length is None else length
    return reference.graphkv_compress(keys, values, scored, refinement, length=length, **rest)


@mutant(
    "compress",
    "a graph has as many neighbours in a short row as in a long one",
    killer="graphkv/test_compress.py::test_each_row_of_hex_has_neighbours_by_its_own_thousands",
)
def unadapted_rows(keys, values, scored, *, refinement=None, **rest):
    """Forget the flag."""
    if isinstance(refinement, GraphSettings):
        refinement = refinement._replace(adaptive=False)
    return reference.compress(keys, values, scored, refinement=refinement, **rest)
