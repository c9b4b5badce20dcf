"""Mutants of GraphKV: the whole refinement."""

import torch

import reference
from spec_tests.mutants.graphkv import VECTOR
from spec_tests.mutants.make import mutant

REFINE = "graphkv/test_refine.py::test_"


@mutant(
    "concatenate_heads",
    "tokens side by side instead of heads",
    killer=f"{REFINE}a_row_holds_the_heads_of_a_token_side_by_side",
)
def reshaped_heads(vectors):
    """Reshape without moving the axis."""
    heads, tokens, width = vectors.shape[-3:]
    return vectors.reshape(*vectors.shape[:-3], tokens, heads * width)


@mutant(
    "graphkv_refine",
    "the first head's scores for the layer",
    killer=f"{REFINE}a_layer_is_one_graph_over_its_heads",
)
def first_head_scores(scores, keys, keep, count, protected=None, **choices):
    """Take head 0 where the mean is meant."""
    if not choices.get("per_head"):
        scores = scores[..., :1, :].expand_as(scores)
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "a graph a head, unasked",
    killer=f"{REFINE}a_layer_graph_and_head_graphs_keep_different_tokens",
)
def always_per_head(scores, keys, keep, count, protected=None, **choices):
    """Ignore the letter."""
    choices["per_head"] = True
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "protected tokens decay",
    killer=f"{REFINE}a_protected_token_keeps_its_score",
)
def protected_decay(scores, keys, keep, count, protected=None, **choices):
    """Forget the mask."""
    return reference.graphkv_refine(scores, keys, keep, count, **choices)


@mutant(
    "graphkv_refine",
    "a protected token's score ranks among the sources",
    killer=f"{REFINE}what_a_protected_token_scores_changes_no_other",
)
def sentinel_scores(scores, keys, keep, count, protected=None, **choices):
    """Let protected tokens be sources, and put their scores back afterwards."""
    refined = reference.graphkv_refine(scores, keys, keep, count, **choices)
    return refined if protected is None else torch.where(protected, scores, refined)


@mutant(
    "graphkv_refine",
    "the window off the budget, unasked",
    killer=f"{VECTOR}a-window-counts-into-the-budget]",
)
def window_always_excluded(scores, keys, keep, count, protected=None, **choices):
    """Turn the remedy on."""
    choices["exclude_window"] = True
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "the window stays in the budget",
    killer=f"{REFINE}excluding_the_window_takes_it_off_the_budget_of_every_graph",
)
def window_never_excluded(scores, keys, keep, count, protected=None, **choices):
    """Ignore the remedy."""
    choices["exclude_window"] = False
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "spares sources unasked",
    killer=f"{REFINE}two_best_twins_annihilate_unless_sources_are_spared",
)
def always_spared(scores, keys, keep, count, protected=None, **choices):
    """Draw Figure 3 instead of the letter."""
    choices["spare_sources"] = True
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "as many neighbours in a short input as in a long one",
    killer=f"{REFINE}an_adaptive_source_has_a_neighbour_for_each_thousand_tokens",
)
def never_adapted(scores, keys, keep, count, protected=None, **choices):
    """Take the number set beforehand."""
    choices["adaptive"] = False
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "keys in half precision throughout",
    killer=f"{REFINE}half_precision_is_rounded_once_at_the_end",
)
def rounded_scores(scores, keys, keep, count, protected=None, **choices):
    """Round after the first round, too."""
    rounds = choices.get("rounds", 1)
    for _ in range(rounds):
        choices["rounds"] = 1
        scores = reference.graphkv_refine(scores, keys, keep, count, protected, **choices)
    return scores


@mutant(
    "graphkv_refine",
    "one number of sources for a whole batch",
    killer=f"{REFINE}a_batch_is_its_rows_one_by_one",
)
def fewest_sources_for_all(scores, keys, keep, count, protected=None, **choices):
    """Let the largest window of the batch count for every graph."""
    if protected is not None and protected.numel():
        keep = max(0, keep - int(protected.sum(-1).max()))
    choices["exclude_window"] = False
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)
