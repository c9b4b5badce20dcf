"""Lies about SnapKV."""

import torch
import torch.nn.functional as F

import reference
from reference import Scored
from spec_tests.mutants.make import mutant, weighed


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
    killer="scorers/snapkv/test_laws.py::test_the_average_counts_what_lies_outside_as_zeros",
)
def uncounted_padding(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Divide by the tokens that are there."""
    return lying(queries, keys, window, kernel, pooling, valid, lambda drawn, content:
        average(drawn[..., :content], kernel, counted=False).mean(-2))  # fmt: skip


@mutant(
    "snapkv",
    "the window is pooled into what lies before it",
    killer="scorers/snapkv/test_laws.py::test_the_average_counts_what_lies_outside_as_zeros",
)
def pooled_before_cut(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Cut the window off after pooling."""
    return lying(queries, keys, window, kernel, pooling, valid, lambda drawn, content:
        average(drawn, kernel).mean(-2)[..., :content])  # fmt: skip


@mutant(
    "snapkv",
    "the group is averaged before maxima are taken",
    killer="test_vectors.py::test_vector[snapkv-maxima-are-taken-before-the-group-is-averaged]",
)
def mean_before_max(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Exchange what does not commute."""
    return lying(queries, keys, window, kernel, pooling, valid, lambda drawn, content:
        largest(drawn[..., :content].mean(-2), kernel))  # fmt: skip


@mutant(
    "snapkv",
    "maxima are taken where averages are asked for",
    killer="scorers/snapkv/test_laws.py::test_scores_add_up_to_less_than_the_window_unless_the_maximum_is_taken",
)
def always_max(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Forget the choice."""
    return reference.snapkv(queries, keys, window, kernel, "max", valid)


@mutant(
    "snapkv",
    "scores are summed over the group",
    killer="scorers/snapkv/test_laws.py::test_without_pooling_it_is_the_mean_mass_of_the_last_queries",
)
def sum_over_the_group(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Forget to divide."""
    scores, protected = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    return Scored(scores * (queries.shape[-3] // max(1, keys.shape[-3])), protected)


@mutant(
    "snapkv",
    "queries are averaged where they are summed",
    killer="scorers/snapkv/test_laws.py::test_without_pooling_it_is_the_mean_mass_of_the_last_queries",
)
def mean_over_queries(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Divide by the window."""
    scores, protected = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    return Scored(scores / window, protected)


@mutant(
    "snapkv",
    "weights are normalised over what lies before the window",
    killer="test_vectors.py::test_vector[snapkv-the-window-itself-draws-its-share]",
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
    killer="scorers/snapkv/test_laws.py::test_the_last_window_of_real_tokens_is_protected_and_scores_nothing",
)
def sentinel_in_the_window(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Write the maximum where a token is protected."""
    scores, protected = reference.snapkv(queries, keys, window, kernel, pooling, valid)
    return Scored(scores.masked_fill(protected, 1.0), protected)


@mutant(
    "snapkv",
    "the first queries observe, not the last",
    killer="scorers/snapkv/test_laws.py::test_queries_before_the_window_say_nothing",
)
def window_at_the_front(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Take the window from the wrong end."""
    turned = queries.flip(-2)
    return reference.snapkv(turned, keys, window, kernel, pooling, valid)


@mutant(
    "snapkv",
    "padding is attended to",
    killer="scorers/scored/test_laws.py::test_a_padded_row_scores_as_the_row_alone[snapkv]",
)
def window_sees_padding(queries, keys, window=32, kernel=5, pooling="average", valid=None):
    """Mask the columns after the softmax."""
    scores, _ = reference.snapkv(queries, keys, window, kernel, pooling)
    protected = reference.snapkv(queries, keys, window, kernel, pooling, valid).protected
    real = torch.ones_like(protected) if valid is None else valid[..., None, :]
    return Scored(torch.where(real, scores, 0), protected)
