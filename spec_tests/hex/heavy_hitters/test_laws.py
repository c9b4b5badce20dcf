"""Attention mass, heavy hitters, the recent window and their union: HEX §3.3."""

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal, assert_optimal
from spec_tests.attention import oracle
from spec_tests.attention.strategies import log_sum_exp, shifts
from spec_tests.inputs import INPUTS
from spec_tests.strategies import CROWD, gaussian_tensor, grid, heads


@pytest.mark.spec("HEX-3.3a")
@given(INPUTS["attention_mass"])
def test_the_mass_of_a_token_is_every_weight_on_it_summed(impl, x):
    mass = impl.attention_mass(**x | dict(span=None, normalize=False))
    heads, tokens = x["queries"].shape[-3], x["keys"].shape[-2]
    keys = x["keys"].repeat_interleave(heads // x["keys"].shape[-3], -3)
    batch = math.prod(mass.shape[:-1])
    rows = (y.reshape(batch, *y.shape[-3:]).tolist() for y in (x["queries"], keys))
    sums = []
    for pairs in zip(*rows, strict=True):
        by_head = (
            oracle.attend_one_head(q, k, k, x["causal"], None)[0]
            for q, k in zip(*pairs, strict=True)
        )
        weights = [query for queries in by_head for query in queries]
        sums.append([math.fsum(query[t] for query in weights) for t in range(tokens)])
    exact = torch.tensor(sums, dtype=torch.float64).reshape(mass.shape)
    assert_close(mass, exact, heads * x["queries"].shape[-2])


@pytest.mark.spec("HEX-3.3a")
@given(INPUTS["attention_mass"], shifts)
def test_a_weight_is_what_the_log_sum_exp_leaves_of_a_logit(impl, x, shift):
    own = log_sum_exp(x["queries"], x["keys"], x["causal"]) + shift
    exact = impl.attention_mass(**x | dict(log_sum_exp=None)).double() * math.exp(-shift)
    mass = impl.attention_mass(**x | dict(log_sum_exp=own))
    assert_close(mass, exact, x["queries"].shape[-3] * x["queries"].shape[-2])


@pytest.mark.spec("HEX-3.3a")
@given(INPUTS["attention_mass"])
def test_a_normalized_mass_is_a_mean_over_the_queries_that_see_the_token(impl, x):
    mass = impl.attention_mass(**x | dict(span=None, normalize=False))
    mean = impl.attention_mass(**x | dict(span=None, normalize=True))
    tokens, count = x["keys"].shape[-2], x["queries"].shape[-2]
    positions = range(tokens - count, tokens)
    seen = [sum(not x["causal"] or t <= last for last in positions) for t in range(tokens)]
    assert_close(mean, mass.double() / torch.tensor(seen).clamp(min=1))


@st.composite
def masses(draw):
    """Attention mass, with or without ties."""
    shape = (*draw(heads), draw(st.integers(0, 100)))
    return draw(grid(*shape) if draw(st.booleans()) else gaussian_tensor(*shape))


@pytest.mark.spec("HEX-3.3b")
@given(masses(), st.integers(0, 100))
@example(torch.arange(10.0), 28)  # 2.8 tokens
def test_heavy_hitters_are_exactly_as_many_as_the_floor(impl, mass, percent):
    heavy = impl.heavy_hitter_mask(mass, percent / 100)
    count = Fraction(percent, 100) * mass.shape[-1] // 1
    assert (heavy.sum(-1) == int(count)).all()


@pytest.mark.spec("HEX-3.3b")
@given(INPUTS["heavy_hitter_mask"])
@example(dict(mass=CROWD, ratio=0.5, recent=4, outside_recent=False))
def test_no_token_left_out_outweighs_a_heavy_hitter(impl, x):
    heavy = impl.heavy_hitter_mask(**x)
    rivals = torch.ones_like(heavy)
    if x["outside_recent"]:
        rivals = ~impl.recent_mask(heavy.shape[-1], x["recent"]).expand(heavy.shape)
    assert not (heavy & ~rivals).any()
    if heavy.numel():
        assert_optimal(heavy, x["mass"], rivals)


@pytest.mark.spec("HEX-3.3b")
@given(st.integers(1, 60), st.integers(0, 100))
def test_of_equal_masses_the_earliest_are_heavy(impl, tokens, percent):
    heavy = impl.heavy_hitter_mask(torch.ones(2, tokens), percent / 100)
    count = percent * tokens // 100
    assert_equal(heavy, (torch.arange(tokens) < count).expand(2, tokens).clone())


@pytest.mark.spec("HEX-3.3c")
@given(st.integers(0, 60), st.integers(0, 80))
def test_the_window_is_the_last_tokens(impl, tokens, recent):
    window = impl.recent_mask(tokens, recent)
    assert window.tolist() == [t >= tokens - recent for t in range(tokens)]
    assert int(window.sum()) == min(tokens, recent)


@pytest.mark.spec("HEX-3.3d")
@given(INPUTS["h2o_mask"])
@example(dict(mass=CROWD, ratio=0.5, recent=4, outside_recent=False))
def test_the_dynamic_mask_is_the_union(impl, x):
    heavy = impl.heavy_hitter_mask(**x)
    window = impl.recent_mask(heavy.shape[-1], x["recent"])
    assert_equal(impl.h2o_mask(**x), heavy | window)
