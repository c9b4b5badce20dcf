"""Lies about scoring by the length of keys."""

import torch

import reference
from reference import Scored
from spec_tests.mutants.make import mutant


@mutant(
    "knorm",
    "lengths are squared",
    killer="scorers/knorm/test_laws.py::test_a_score_is_minus_the_length_of_the_key",
)
def squared_lengths(keys, valid=None, shift=False):
    """Forget the root."""
    scores, protected = reference.knorm(keys, valid, shift)
    return Scored(-scores.square(), protected)


@mutant(
    "knorm",
    "lengths are compared over all heads",
    killer="scorers/knorm/test_laws.py::test_the_longest_real_key_of_a_head_is_shifted_to_zero",
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
    killer="scorers/scored/test_laws.py::"
    "test_what_stands_at_padding_changes_nothing[knorm, shifted]",
)
def longest_padding(keys, valid=None, shift=False):
    """Mask after the maximum."""
    scores, protected = reference.knorm(keys, None, shift)
    real = torch.ones_like(protected) if valid is None else valid[..., None, :]
    return Scored(torch.where(real, scores, 0), protected)
