"""Mutants of the scorers that need queries and keys alone."""

import torch
import torch.nn.functional as F

import reference
from reference import Scored
from spec_tests.mutants.make import mutant


@mutant(
    "knorm",
    "lengths are squared",
    killer="scorers/test_knorm.py::test_a_score_is_minus_the_length_of_the_key",
)
def squared_lengths(keys, valid=None, shift=False):
    """Forget the root."""
    scores, protected = reference.knorm(keys, valid, shift)
    return Scored(-scores.square(), protected)


@mutant(
    "knorm",
    "lengths are compared over all heads",
    killer="scorers/test_knorm.py::test_the_longest_real_key_of_a_head_is_shifted_to_zero",
)
def longest_of_the_layer(keys, valid=None, shift=False):
    """Shift by the longest key of any head."""
    scores, protected = reference.knorm(keys, valid)
    if not shift or not scores.numel():
        return Scored(scores, protected)
    shifted = scores - scores.amin((-2, -1), keepdim=True)
    real = torch.ones_like(protected) if valid is None else valid[..., None, :]
    return Scored(torch.where(real, shifted, 0), protected)


@mutant(
    "knorm",
    "padding may be the longest",
    killer="scorers/test_scored.py::test_what_stands_at_padding_changes_nothing[knorm, shifted]",
)
def longest_padding(keys, valid=None, shift=False):
    """Mask after the maximum."""
    scores, protected = reference.knorm(keys, None, shift)
    real = torch.ones_like(protected) if valid is None else valid[..., None, :]
    return Scored(torch.where(real, scores, 0), protected)


def weighed(queries, keys):
    """Return the weights of every query head, `[*batch, kv_heads, group, queries, tokens]`."""
    weights = reference.attention_weights(queries, keys)
    kv_heads = keys.shape[-3]
    group = weights.shape[-3] // max(1, kv_heads)
    return weights.reshape(*weights.shape[:-3], kv_heads, group, *weights.shape[-2:])


@mutant(
    "h2o_mass",
    "mass is summed over all heads of the layer",
    killer="scorers/test_h2o.py::test_mass_is_what_every_query_of_the_group_hands_out",
)
def mass_of_the_layer(queries, keys, mass=None, valid=None):
    """Give every key head the same."""
    total = reference.h2o_mass(queries, keys, mass, valid)
    return total.sum(-2, keepdim=True).expand(total.shape).clone()


@mutant(
    "h2o_mass",
    "mass is averaged over the group",
    killer="scorers/test_h2o.py::test_every_real_query_of_every_head_adds_one",
)
def mean_over_the_group(queries, keys, mass=None, valid=None):
    """Divide what is new by the query heads of a key head."""
    new = reference.h2o_mass(queries, keys, None, valid)
    old = reference.h2o_mass(queries[..., :0, :], keys, mass, valid)
    return old + new / max(1, queries.shape[-3] // max(1, keys.shape[-3]))


@mutant(
    "h2o_mass",
    "padding is attended to",
    killer="scorers/test_scored.py::test_a_padded_row_scores_as_the_row_alone[h2o]",
)
def mass_with_padding(queries, keys, mass=None, valid=None):
    """Mask the columns after the softmax."""
    total = reference.h2o_mass(queries, keys, mass)
    return total if valid is None else torch.where(valid[..., None, :], total, 0)


@mutant(
    "h2o_mass",
    "only the last queries count",
    killer="scorers/test_h2o.py::test_chunks_and_single_steps_add_up_to_the_whole_prompt",
)
def forgetful_mass(queries, keys, mass=None, valid=None):
    """Start anew with every chunk."""
    return reference.h2o_mass(queries, keys, None, valid)


@mutant(
    "h2o_mass",
    "the first query sits at the first key",
    killer="test_vectors.py::test_vector[base_scorers-a-decoded-query-sees-the-whole-cache]",
)
def aligned_at_the_front(queries, keys, mass=None, valid=None):
    """Let a chunk see no more keys than it has queries."""
    count = queries.shape[-2]
    total = reference.h2o_mass(queries[..., :0, :], keys, mass, valid)
    seen = None if valid is None else valid[..., :count]
    total[..., :count] += reference.h2o_mass(queries, keys[..., :count, :], None, seen)
    return total


@mutant(
    "h2o_mass",
    "all weights are held at once",
    killer="scorers/test_h2o.py::test_nothing_of_queries_by_tokens_is_allocated",
)
def all_weights_at_once(queries, keys, mass=None, valid=None):
    """Sum a matrix of queries by tokens."""
    old = reference.h2o_mass(queries[..., :0, :], keys, mass, valid)
    return old + weighed(queries, keys).sum((-3, -2))


@mutant(
    "h2o",
    "recent tokens score a sentinel",
    killer="scorers/test_h2o.py::test_the_mass_is_the_score_of_protected_tokens_too",
)
def sentinel_for_recent(mass, keep, valid=None, recent=None):
    """Write one more than the maximum where a token is protected."""
    scores, protected = reference.h2o(mass, keep, valid, recent)
    return Scored(torch.where(protected, scores + 1, scores), protected)


@mutant(
    "h2o",
    "heavy hitters may be recent, so that fewer others are",
    killer="scorers/test_h2o.py::test_half_are_recent_and_half_the_heaviest_of_the_others",
)
def nobody_protected(mass, keep, valid=None, recent=None):
    """Rank everything."""
    scores, protected = reference.h2o(mass, keep, valid, recent)
    return Scored(scores, torch.zeros_like(protected))


@mutant(
    "h2o",
    "the recent half is rounded up",
    killer="scorers/test_h2o.py::test_the_last_real_tokens_are_protected_half_the_budget_unless_told",
)
def larger_half(mass, keep, valid=None, recent=None):
    """Give the odd token to the window."""
    return reference.h2o(mass, keep, valid, (keep + 1) // 2 if recent is None else recent)


def observed(queries, keys, window, valid):
    """Return what the window hands out to what lies before it, a row a query head."""
    batch, heads = queries.shape[:-3], queries.shape[-3]
    group = heads // max(1, keys.shape[-3])
    rows = [
        reference.h2o_mass(
            queries[..., h : h + 1, max(0, queries.shape[-2] - window) :, :],
            keys[..., h // group : h // group + 1, :, :],
            None,
            valid,
        )
        for h in range(heads)
    ]
    tokens = keys.shape[-2]
    drawn = torch.cat(rows, -2) if rows else keys.new_zeros(*batch, 0, tokens)
    return drawn.reshape(*batch, keys.shape[-3], group, tokens)


def lying(queries, keys, window, kernel, pooling, valid, pool):
    """Score with another way to pool and to average."""
    right = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    scores, protected = right
    content = max(0, keys.shape[-2] - window)
    if content and scores.numel() and queries.shape[-3]:
        wrong = pool(observed(queries, keys, window, valid), content).to(scores.dtype)
        scores = torch.where(scores != 0, F.pad(wrong, (0, window)), scores)
    return Scored(scores, protected)


def average(drawn, kernel, counted=True):
    """Pool by averages, padding counted or not."""
    flat = drawn.flatten(0, -2)[:, None]
    pooled = F.avg_pool1d(flat, kernel, 1, kernel // 2, count_include_pad=counted)
    return pooled.view(drawn.shape)


def largest(drawn, kernel):
    """Pool by maxima."""
    flat = drawn.flatten(0, -2)[:, None]
    return F.max_pool1d(flat, kernel, 1, kernel // 2).view(drawn.shape)


@mutant(
    "snapkv",
    "averages at the ends leave the padding out",
    killer="scorers/test_snapkv.py::test_the_average_counts_what_lies_outside_as_zeros",
)
def uncounted_padding(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Divide by the tokens that are there."""
    return lying(queries, keys, window, kernel, pooling, valid, lambda drawn, content:
        average(drawn[..., :content], kernel, counted=False).mean(-2))  # fmt: skip


@mutant(
    "snapkv",
    "the window is pooled into what lies before it",
    killer="scorers/test_snapkv.py::test_the_average_counts_what_lies_outside_as_zeros",
)
def pooled_before_cut(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Cut the window off after pooling."""
    return lying(queries, keys, window, kernel, pooling, valid, lambda drawn, content:
        average(drawn, kernel).mean(-2)[..., :content])  # fmt: skip


@mutant(
    "snapkv",
    "the group is averaged before maxima are taken",
    killer="test_vectors.py::test_vector[base_scorers-maxima-are-taken-before-the-group-is-averaged]",
)
def mean_before_max(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Exchange what does not commute."""
    return lying(queries, keys, window, kernel, pooling, valid, lambda drawn, content:
        largest(drawn[..., :content].mean(-2), kernel))  # fmt: skip


@mutant(
    "snapkv",
    "maxima are taken where averages are asked for",
    killer="scorers/test_snapkv.py::test_scores_add_up_to_less_than_the_window_unless_the_maximum_is_taken",
)
def always_max(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Forget the choice."""
    return reference.snapkv(queries, keys, window, kernel, "max", valid)


@mutant(
    "snapkv",
    "scores are summed over the group",
    killer="scorers/test_snapkv.py::test_without_pooling_it_is_the_mean_mass_of_the_last_queries",
)
def sum_over_the_group(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Forget to divide."""
    scores, protected = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    return Scored(scores * (queries.shape[-3] // max(1, keys.shape[-3])), protected)


@mutant(
    "snapkv",
    "queries are averaged where they are summed",
    killer="scorers/test_snapkv.py::test_without_pooling_it_is_the_mean_mass_of_the_last_queries",
)
def mean_over_queries(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Divide by the window."""
    scores, protected = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    return Scored(scores / window, protected)


@mutant(
    "snapkv",
    "weights are normalised over what lies before the window",
    killer="test_vectors.py::test_vector[base_scorers-the-window-itself-draws-its-share]",
)
def normalised_again(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Make every query hand out all of its attention to what lies before the window."""
    content = max(0, keys.shape[-2] - window)
    right = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    if not content:
        return right
    weights = weighed(queries[..., queries.shape[-2] - window :, :], keys)[..., :content]
    share = (weights / weights.sum(-1, keepdim=True)).sum(-2)
    return Scored(F.pad(average(share, kernel).mean(-2), (0, window)), right.protected)


@mutant(
    "snapkv",
    "the window scores a sentinel",
    killer="scorers/test_snapkv.py::test_the_last_window_of_real_tokens_is_protected_and_scores_nothing",
)
def sentinel_in_the_window(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Write the maximum where a token is protected."""
    scores, protected = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    return Scored(scores.masked_fill(protected, 1.0), protected)


@mutant(
    "snapkv",
    "the first queries observe, not the last",
    killer="scorers/test_snapkv.py::test_queries_before_the_window_say_nothing",
)
def window_at_the_front(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Take the window from the wrong end."""
    turned = queries.flip(-2)
    return reference.snapkv(turned, keys, window, kernel, pooling, valid)


@mutant(
    "snapkv",
    "padding is attended to",
    killer="scorers/test_scored.py::test_a_padded_row_scores_as_the_row_alone[snapkv]",
)
def window_sees_padding(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Mask the columns after the softmax."""
    scores, _ = reference.snapkv(queries, keys, window, kernel, pooling)
    protected = reference.snapkv(queries, keys, window, kernel, pooling, valid).protected
    real = torch.ones_like(protected) if valid is None else valid[..., None, :]
    return Scored(torch.where(real, scores, 0), protected)


@mutant(
    "pyramidkv_budgets",
    "the overspending is left in the exact budgets",
    killer="scorers/test_pyramidkv.py::test_exact_budgets_add_up_to_the_budget",
)
def never_exact(keep, layers, tokens, window=32, beta=20, exact=False):
    """Ignore the choice."""
    return reference.pyramidkv_budgets(keep, layers, tokens, window, beta)


@mutant(
    "pyramidkv_budgets",
    "the steps are exact where they are rounded down",
    killer="scorers/test_pyramidkv.py::test_32_layers_overspend_by_the_known_share",
)
def always_exact(keep, layers, tokens, window=32, beta=20, exact=False):
    """Spend the budget and no more."""
    return reference.pyramidkv_budgets(keep, layers, tokens, window, beta, True)


@mutant(
    "pyramidkv_budgets",
    "the first layers get more than there is",
    killer="scorers/test_pyramidkv.py::test_budgets_never_grow_from_layer_to_layer_nor_leave_their_bounds",
)
def unbounded(keep, layers, tokens, window=32, beta=20, exact=False):
    """Draw the line as for an endless prompt."""
    lengths = torch.as_tensor(tokens)
    endless = torch.full_like(lengths, 10**9)
    return reference.pyramidkv_budgets(keep, layers, endless, window, beta, exact)


@mutant(
    "pyramidkv_budgets",
    "rows share the budgets of the longest",
    killer="scorers/test_pyramidkv.py::test_every_row_has_the_budgets_of_its_own_length",
)
def as_the_longest(keep, layers, tokens, window=32, beta=20, exact=False):
    """Take the length of the padded batch."""
    lengths = torch.as_tensor(tokens)
    longest = lengths.amax().expand(lengths.shape).clone() if lengths.numel() else lengths
    return reference.pyramidkv_budgets(keep, layers, longest, window, beta, exact)


@mutant(
    "pyramidkv_budgets",
    "the least budget is a binary fraction cut short",
    killer="test_vectors.py::test_vector[base_scorers-the-least-budget-is-a-whole-quotient]",
)
def cut_short(keep, layers, tokens, window=32, beta=20, exact=False):
    """Multiply by the reciprocal and cut: 49 times 1/49 is below 1."""
    budgets = reference.pyramidkv_budgets(keep, layers, tokens, window, beta, exact)
    lost = (keep - window) // beta - int((keep - window) * (1 / beta))
    budgets[0] += lost
    return budgets


@mutant(
    "streaming_llm",
    "sinks are the first tokens, padding or not",
    killer="scorers/test_streaming_llm.py::test_the_sinks_are_the_first_real_tokens",
)
def sinks_at_padding(keys, sinks=4, valid=None):
    """Count from the left of the tensor."""
    scores, protected = reference.streaming_llm(keys, sinks, valid)
    first = torch.arange(protected.shape[-1]) < sinks
    return Scored(scores, first.expand(protected.shape).clone())


@mutant(
    "streaming_llm",
    "the oldest tokens are kept",
    killer="scorers/test_streaming_llm.py::test_the_first_and_the_last_real_tokens_are_kept",
)
def oldest_first(keys, sinks=4, valid=None):
    """Turn the order around."""
    scores, protected = reference.streaming_llm(keys, sinks, valid)
    return Scored(-scores, protected)


@mutant(
    "streaming_llm",
    "sinks score a sentinel",
    killer="scorers/test_streaming_llm.py::test_a_score_is_the_number_of_real_tokens_up_to_it",
)
def sentinel_for_sinks(keys, sinks=4, valid=None):
    """Write the largest number there is."""
    scores, protected = reference.streaming_llm(keys, sinks, valid)
    return Scored(scores.masked_fill(protected, torch.finfo(scores.dtype).max), protected)
