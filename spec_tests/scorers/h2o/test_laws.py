"""H2O: accumulated attention; half of the budget is for recent tokens."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.attention.strategies import shifts
from spec_tests.inputs import INPUTS
from spec_tests.scorers.attention_inputs import (
    attended,
    log_sum_exp_with_padding_fill,
    two_row_batch,
)
from spec_tests.scorers.h2o import oracle
from spec_tests.scorers.padding_invariance import assert_rows
from spec_tests.strategies import signed_sixteenths

pytestmark = pytest.mark.spec("GraphKV-H2O")

sequences = attended(number=signed_sixteenths)


@given(two_row_batch())
def test_mass_is_what_every_query_of_the_group_hands_out(impl, x):
    assert_rows(impl.h2o_mass(**x), x, oracle.h2o_mass)


@given(sequences, st.sampled_from([-torch.inf, torch.nan]), shifts)
def test_a_weight_is_what_the_log_sum_exp_leaves_of_a_logit(impl, x, beside, shift):
    try:
        mass = impl.h2o_mass(**x, log_sum_exp=log_sum_exp_with_padding_fill(x, beside) + shift)
    except ValueError as error:
        raise AssertionError("what stands at padding is read") from error
    exact = impl.h2o_mass(**x).double() * math.exp(-shift)
    assert_close(mass, exact, float(x["queries"].shape[-3] * x["queries"].shape[-2]))


@given(sequences, st.lists(st.integers(0, 8), max_size=4))
def test_chunks_and_single_steps_add_up_to_the_whole_prompt(impl, x, cuts):
    queries, keys, valid = x["queries"], x["keys"], x["valid"]
    tokens, count = keys.shape[-2], queries.shape[-2]
    before = None if valid is None else valid[..., : tokens - count]
    mass = impl.h2o_mass(queries[..., :0, :], keys[..., : tokens - count, :], valid=before)
    bounds = sorted(min(cut, count) for cut in cuts)
    for start, stop in zip([0, *bounds], [*bounds, count], strict=True):
        seen = tokens - count + stop
        real = None if valid is None else valid[..., :seen]
        mass = impl.h2o_mass(queries[..., start:stop, :], keys[..., :seen, :], mass, real)
    assert_close(mass, impl.h2o_mass(**x).double(), float(queries.shape[-3] * count))


@given(INPUTS["h2o"])
def test_the_mass_is_the_score_of_protected_tokens_too(impl, x):
    valid = torch.ones(x["mass"].shape[-1]).bool() if x["valid"] is None else x["valid"]
    assert_equal(impl.h2o(**x).scores, torch.where(valid[..., None, :], x["mass"], 0))


@given(INPUTS["h2o"])
def test_the_last_real_tokens_are_protected_half_the_budget_unless_told(impl, x):
    protected = impl.h2o(**x).protected
    recent = x["keep"] // 2 if x["recent"] is None else x["recent"]
    tokens = protected.shape[-1]
    window = impl.recent_mask(tokens, recent)
    valid = torch.ones(tokens).bool() if x["valid"] is None else x["valid"]
    assert_equal(protected, (window & valid)[..., None, :].expand(protected.shape).clone())


@given(INPUTS["h2o"])
def test_half_are_recent_and_half_the_heaviest_of_the_others(impl, x):
    mass = x["mass"]
    keep = min(x["keep"], mass.shape[-1])
    kept = impl.retain(*impl.h2o(mass, keep), keep=keep).reshape(-1, mass.shape[-1] or 1)
    for found, row in zip(kept, mass.reshape(kept.shape), strict=True):
        wanted = oracle.h2o_kept(row.tolist()[: mass.shape[-1]], keep)
        assert {t for t in range(mass.shape[-1]) if found[t]} == wanted
