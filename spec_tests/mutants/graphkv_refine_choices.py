"""Mutants of GraphKV: a refinement that mistakes one of its choices."""

import reference
from spec_tests.mutants.graphkv import VECTOR
from spec_tests.mutants.make import mutant

COMPOSED = "graphkv/test_refine_composed.py::test_every_graph_is_made_of_its_parts"
WINDOW = "graphkv/test_refine_composed.py::test_every_graph_takes_its_own_window_off_the_budget"


@mutant("graphkv_refine", "one rule whatever is asked", killer=COMPOSED)
def rule_ignored(scores, keys, keep, count, protected=None, **choices):
    """Multiply."""
    choices["rule"] = "product"
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant("graphkv_refine", "keys whatever is compared", killer=COMPOSED)
def kind_ignored(scores, keys, keep, count, protected=None, **choices):
    """Leave queries and values aside."""
    choices["kind"] = "kk"
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant("graphkv_refine", "one round of decay whatever is asked", killer=COMPOSED)
def one_round_of_decay(scores, keys, keep, count, protected=None, **choices):
    """Forget the loop of one signal."""
    if choices.get("signal", "decay") == "decay":
        choices["rounds"] = min(1, choices.get("rounds", 1))
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant("graphkv_refine", "one round of enhancing whatever is asked", killer=COMPOSED)
def one_round_of_enhancing(scores, keys, keep, count, protected=None, **choices):
    """Forget the loop of the other signal."""
    if choices.get("signal") == "enhance":
        choices["rounds"] = min(1, choices.get("rounds", 1))
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant("graphkv_refine", "enhances at full strength", killer=COMPOSED)
def enhancing_at_full_strength(scores, keys, keep, count, protected=None, **choices):
    """Hand the strength to the decay alone."""
    if choices.get("signal") == "enhance":
        choices["strength"] = 1.0
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant("graphkv_refine", "the first query stands for its group", killer=COMPOSED)
def first_query_of_the_group(scores, keys, keep, count, protected=None, **choices):
    """Take every G-th query head."""
    if (queries := choices.get("queries")) is not None and keys.shape[-3]:
        choices["queries"] = queries[..., :: queries.shape[-3] // keys.shape[-3], :, :]
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant(
    "graphkv_refine",
    "one source where the window comes off the budget",
    killer=f"{VECTOR}a-window-excluded-from-the-budget]",
)
def one_source_beside_the_window(scores, keys, keep, count, protected=None, **choices):
    """Take the share of nothing."""
    if choices.get("exclude_window"):
        choices["fraction"] = 1e-9
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)


@mutant("graphkv_refine", "the largest window of a batch for every graph", killer=WINDOW)
def largest_window_for_all(scores, keys, keep, count, protected=None, **choices):
    """Take one number off the budget of all."""
    if choices.get("exclude_window") and protected is not None and protected.numel():
        windows = protected if choices.get("per_head") else protected.any(-2)
        keep, choices["exclude_window"] = keep - int(windows.sum(-1).max()), False
    return reference.graphkv_refine(scores, keys, keep, count, protected, **choices)
