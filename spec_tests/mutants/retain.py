"""Mutants of selection."""

import torch

import reference
from spec_tests.mutants.make import mutant

COUNTS = "attention/test_retain_counts.py::"
LAWS = "attention/test_retain.py::"


def thresholds(scores, protected, options):
    """Return the worst score that each pool keeps, beside the true mask."""
    kept = reference.retain(scores, protected, **options)
    scope = options.get("scope", "head")
    axes = {"head": (-1,), "layer": (-2, -1), "model": (0, -2, -1)}[scope]
    worst = scores.masked_fill(~kept, torch.inf).amin(axes, keepdim=True) if scores.numel() else 0
    return kept, worst


@mutant(
    "kept_count",
    "the count is computed in binary",
    killer="test_vectors.py::test_vector[retain-nine-tenths-of-a-hundred-leaves-ten]",
)
def binary_count(pool, ratio):
    """Multiply floats."""
    return int(pool * (1 - ratio))


@mutant(
    "kept_count",
    "the count is rounded to the nearest",
    killer=COUNTS + "test_the_budget_is_the_exact_floor_of_what_is_not_removed",
)
def rounded_count(pool, ratio):
    """Round instead of the floor."""
    return round(pool * (1 - ratio))


@mutant(
    "retain",
    "what is above the threshold is kept: ties at it are lost",
    killer=LAWS + "test_counts_are_exact_with_evicted_and_protected_entries_too",
)
def strict_threshold(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Compare with > where scores tie."""
    kept, worst = thresholds(scores, protected, dict(keep=keep, ratio=ratio, scope=scope))
    return kept & (scores > worst)


@mutant(
    "retain",
    "what reaches the threshold is kept: ties at it overfill the budget",
    killer=LAWS + "test_counts_are_exact_with_evicted_and_protected_entries_too",
)
def inclusive_threshold(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Compare with >= where scores tie."""
    kept, worst = thresholds(scores, protected, dict(keep=keep, ratio=ratio, scope=scope))
    return kept | (scores >= worst)


@mutant(
    "retain",
    "of equal scores the highest index is kept",
    killer=LAWS + "test_pools_are_filled_in_the_total_order",
)
def last_of_a_tie(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Read each pool backwards."""
    axes = {"head": (-1,), "layer": (-2, -1), "model": (0, -2, -1)}[scope]
    shields = None if protected is None else protected.flip(axes)
    kept = reference.retain(scores.flip(axes), shields, keep=keep, ratio=ratio, scope=scope)
    return kept.flip(axes)


@mutant(
    "retain",
    "protected entries come on top of the budget",
    killer="test_vectors.py::test_vector[retain-protected-entries-take-their-share-of-the-budget]",
)
def protected_on_top(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Select without the mask, then add it."""
    kept = reference.retain(scores, keep=keep, ratio=ratio, scope=scope)
    return kept if protected is None else kept | protected


@mutant(
    "retain",
    "protected entries get a score of 1, as if that were the maximum",
    killer="test_vectors.py::test_vector[retain-a-protected-entry-beats-any-score]",
)
def protected_by_sentinel(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Trust Eq. 13."""
    scores = scores if protected is None else scores.masked_fill(protected, 1.0)
    return reference.retain(scores, keep=keep, ratio=ratio, scope=scope)


@mutant(
    "retain",
    "evicted entries never count towards the budget",
    killer="test_vectors.py::test_vector[retain-evicted-entries-fill-an-empty-budget]",
)
def evicted_is_gone(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Drop minus infinity even where nothing else is left."""
    kept = reference.retain(scores, protected, keep=keep, ratio=ratio, scope=scope)
    return kept & (scores > -torch.inf)


@mutant(
    "retain",
    "all batch rows of a model share one pool",
    killer=LAWS + "test_each_batch_row_is_a_model_of_its_own",
)
def batch_rows_mixed(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Take the batch for a second axis of layers."""
    if scope != "model" or scores.ndim < 4 or not isinstance(keep, int):
        return reference.retain(scores, protected, keep=keep, ratio=ratio, scope=scope)
    layers, shields = scores.flatten(0, -3), None if protected is None else protected.flatten(0, -3)
    rows = scores.shape[1:-2].numel()
    return reference.retain(layers, shields, keep=keep * rows, scope="model").view(scores.shape)


@mutant(
    "retain",
    "ties over a model go by position first",
    killer=LAWS + "test_equal_scores_over_a_model_go_by_layer_then_head_then_position",
)
def positions_before_heads(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Lay a pool out as [tokens, heads]."""
    if scope == "head":
        return reference.retain(scores, protected, keep=keep, ratio=ratio)
    shields = None if protected is None else protected.mT
    return reference.retain(scores.mT, shields, keep=keep, ratio=ratio, scope=scope).mT


@mutant(
    "retain",
    "a budget of nothing keeps everything",
    killer="test_vectors.py::test_vector[retain-nothing-kept-is-nothing]",
)
def trailing_slice_of_nothing(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Take order[-0:]."""
    kept = reference.retain(scores, protected, keep=keep, ratio=ratio, scope=scope)
    return kept if kept.any() else ~kept


@mutant(
    "retain",
    "the budget of a layer is dealt out evenly to its heads",
    killer="test_vectors.py::test_vector[retain-a-layer-is-one-pool]",
)
def layer_split_evenly(scores, protected=None, *, keep=None, ratio=None, scope="head"):
    """Treat a layer's budget as each head's."""
    if scope != "layer" or not isinstance(keep, int):
        return reference.retain(scores, protected, keep=keep, ratio=ratio, scope=scope)
    return reference.retain(scores, protected, keep=keep // scores.shape[-2])


@mutant(
    "ranking",
    "-0.0 ranks below 0.0",
    killer="test_vectors.py::test_vector[retain-both-zeros-tie]",
)
def negative_zero_is_less(scores):
    """Sort the sign bit before the position."""
    order = torch.signbit(scores).argsort(dim=-1, stable=True)
    return order.gather(-1, reference.ranking(scores.gather(-1, order)))


@mutant(
    "modular_utility",
    "the utility is a mean over the kept entries",
    killer=LAWS + "test_top_k_maximises_the_modular_utility",
)
def utility_as_a_mean(scores, kept):
    """Divide by the size of the set."""
    return reference.modular_utility(scores, kept) / kept.sum(-1).clamp(min=1)
