"""Attention and its deviation: HEX §3.1."""

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close, assert_equal
from spec_tests.attention import oracle
from spec_tests.attention.strategies import (
    attending,
    log_sum_exp,
    on_grid,
    shifts,
    with_log_sum_exp,
    without_values,
)

CACHE = ("keys", "values", "compressed_keys", "compressed_values")


@st.composite
def sizes(draw, causal=st.booleans(), extra=(0, 3)):  # noqa: B008
    """Sizes that leave something to see: at least one head, query and token."""
    kv_heads, queries = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    heads, tokens = kv_heads * draw(st.integers(1, 3)), queries + draw(st.integers(*extra))
    batch = draw(st.sampled_from([(), (2,)]))
    return batch, heads, kv_heads, queries, tokens, draw(st.integers(1, 4)), draw(causal)


seeing = attending(sizes())
causal = attending(sizes(st.just(True)))
comparing = attending(sizes(), compressed=True)


def largest(values):
    """Return the magnitude that bounds every output, and so scales its rounding."""
    return values.abs().amax()


def in_logits(x):
    """Return what a weight is rounded by: an error of a logit multiplies it."""
    group = x["queries"].shape[-3] // x["keys"].shape[-3]
    keys = x["keys"].abs().repeat_interleave(group, -3)
    return 1 + (x["queries"].abs() @ keys.mT).amax() * (x["scale"] or 1)


@pytest.mark.spec("HEX-3.1a")
@given(seeing)
def test_agrees_with_scalar_loops(impl, x):
    weights, out = impl.attention_weights(**without_values(x)), impl.attention(**x)
    queries, keys, values = (x[name].double() for name in ("queries", "keys", "values"))
    group, size = queries.shape[-3] // keys.shape[-3], in_logits(x)
    for *batch, h in product(*map(range, queries.shape[:-2])):
        shared = (*batch, h // group)
        expected_weights, expected = oracle.attend_one_head(
            queries[(*batch, h)].tolist(),
            keys[shared].tolist(),
            values[shared].tolist(),
            x["causal"],
            x["scale"],
        )
        assert_close(weights[(*batch, h)], torch.tensor(expected_weights).double(), size)
        assert_close(out[(*batch, h)], torch.tensor(expected).double(), size * largest(values))


@pytest.mark.spec("HEX-3.1a")
@given(seeing)
def test_the_weights_of_a_query_sum_to_one(impl, x):
    weights = impl.attention_weights(**without_values(x))
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), 1.0)


@pytest.mark.spec("HEX-3.1a")
@given(attending(sizes(), numbers=[on_grid]), shifts)
def test_a_weight_is_the_power_of_what_a_logit_exceeds_the_log_sum_exp_by(impl, x, shift):
    x = with_log_sum_exp(x)
    weights = impl.attention_weights(**x | dict(log_sum_exp=None)).double()
    x["log_sum_exp"] += shift
    assert_close(impl.attention_weights(**x), weights * math.exp(-shift), in_logits(x))


long: Any = [torch.randn(h, 40, 4, generator=torch.Generator().manual_seed(h)) for h in (4, 2)]
sums = log_sum_exp(*long)


@pytest.mark.argument_checks
@pytest.mark.spec("HEX-3.1a", "HEX-3.3a", "GraphKV-H2O", "GraphKV-SnapKV")
@pytest.mark.parametrize("name", ["attention_weights", "attention_mass", "h2o_mass", "snapkv"])
def test_a_log_sum_exp_that_is_not_finite_is_refused(impl, name):
    function = getattr(impl, name)
    function(*long, log_sum_exp=sums)
    for bad in (-torch.inf, torch.inf, torch.nan):
        with impl.refuses("log_sum_exp"):
            function(*long, log_sum_exp=sums.masked_fill(torch.arange(40) == 7, bad))


@pytest.mark.spec("HEX-3.1a")
@given(causal)
def test_a_causal_query_sees_up_to_its_own_position_and_no_further(impl, x):
    weights = impl.attention_weights(**without_values(x))
    queries, tokens = weights.shape[-2:]
    seen = torch.ones(queries, tokens, dtype=torch.bool).tril(tokens - queries)
    assert_equal(weights > 0, seen.expand_as(weights).clone())


@pytest.mark.spec("HEX-3.1a")
@given(seeing)
def test_grouped_queries_equal_repeated_key_heads(impl, x):
    group = x["queries"].shape[-3] // x["keys"].shape[-3]
    repeated = {name: x[name].repeat_interleave(group, -3) for name in ("keys", "values")}
    size = in_logits(x) * largest(x["values"])
    assert_close(impl.attention(**x), impl.attention(**x | repeated), size)


@pytest.mark.spec("HEX-3.1a")
@given(causal)
def test_decoding_a_token_gives_the_row_it_has_in_the_prefill(impl, x):
    prefill = impl.attention(**x)
    queries, tokens = x["queries"].shape[-2], x["keys"].shape[-2]
    size = in_logits(x) * largest(x["values"])
    for t in range(queries):
        seen = tokens - queries + t + 1
        cache = {name: x[name][..., :seen, :] for name in ("keys", "values")}
        decoded = impl.attention(**x | cache | dict(queries=x["queries"][..., t : t + 1, :]))
        assert_close(decoded, prefill[..., t : t + 1, :], size)


@pytest.mark.spec("HEX-3.1a")
@given(attending(sizes(extra=(0, 0)), compressed=False))
def test_a_cache_of_one_token_returns_its_value(impl, x):
    first = {name: x[name][..., :1, :] for name in ("queries", "keys", "values")}
    group = x["queries"].shape[-3] // x["keys"].shape[-3]
    assert_close(impl.attention(**x | first), first["values"].repeat_interleave(group, -3), 0.0)


@pytest.mark.spec("HEX-3.1a")
@given(attending(sizes(st.just(False))), st.randoms(use_true_random=False))
def test_without_causality_the_order_of_the_cache_is_irrelevant(impl, x, random):
    order = [*range(x["keys"].shape[-2])]
    random.shuffle(order)
    shuffled = {name: x[name][..., order, :] for name in ("keys", "values")}
    size = in_logits(x) * largest(x["values"])
    assert_close(impl.attention(**x | shuffled), impl.attention(**x), size)


@pytest.mark.spec("HEX-3.1a")
@given(seeing, st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_powers_of_two_move_freely_between_queries_keys_and_scale(impl, x, power):
    x = without_values(x) | dict(scale=0.5)
    weights = impl.attention_weights(**x)
    stretched, size = x["queries"] * power, in_logits(x)
    for other in (dict(scale=0.5 / power), dict(keys=x["keys"] / power)):
        moved = impl.attention_weights(**x | other | dict(queries=stretched))
        assert_close(moved, weights, size)


@pytest.mark.spec("HEX-3.1a")
@given(seeing)
def test_the_default_scale_is_one_over_the_root_of_the_width(impl, x):
    x = without_values(x)
    root = dict(scale=x["queries"].shape[-1] ** -0.5)
    given_none = impl.attention_weights(**x | dict(scale=None))
    assert_close(given_none, impl.attention_weights(**x | root), in_logits(x))


@pytest.mark.spec("HEX-3.1a")
@given(seeing)
def test_the_output_lies_between_the_values(impl, x):
    out = impl.attention(**x)
    group = x["queries"].shape[-3] // x["keys"].shape[-3]
    values = x["values"].repeat_interleave(group, -3)
    slack = 2 * largest(values)  # rounding is relative to the largest value, not to the nearest
    assert_at_most(values.amin(-2, keepdim=True) + slack, out + slack)
    assert_at_most(out + slack, values.amax(-2, keepdim=True) + slack)


@pytest.mark.spec("HEX-3.1a")
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_widened_for_the_softmax(impl, half):
    generator = torch.Generator().manual_seed(0)
    queries = torch.randn(4, 3, 8, generator=generator).to(half)
    keys, values = (torch.randn(2, 5, 8, generator=generator).to(half) for _ in range(2))
    assert impl.attention_weights(queries, keys).dtype == torch.float32
    wide = dict(queries=queries.float(), keys=keys.float(), scale=None)
    size = in_logits(wide) * largest(values)
    expected = impl.attention(wide["queries"], wide["keys"], values.float())
    assert_close(impl.attention(queries, keys, values), expected, size)


@pytest.mark.spec("HEX-3.1a", "HEX-3.1b")
@given(comparing, st.sampled_from(["queries", *CACHE]), st.sampled_from([torch.float16, None]))
def test_one_argument_in_float64_suffices(impl, x, name, others):
    """Then all is computed in it, and only an output takes the dtype of the queries."""
    tensors = ("queries", *CACHE)
    mixed = {k: v.to(others) if k in tensors and others else v for k, v in x.items()}
    mixed[name] = mixed[name].double()
    exact = {k: v.double() if k in tensors else v for k, v in mixed.items()}
    size = in_logits(exact) * sum(largest(exact[n]) for n in ("values", "compressed_values"))
    assert_close(impl.attention_error(**mixed), impl.attention_error(**exact), size)
    assert impl.attention_error(**mixed).dtype == torch.float64
    mixed, exact = (
        {k: v for k, v in each.items() if k not in CACHE[2:]} for each in (mixed, exact)
    )
    assert impl.attention(**mixed).dtype == mixed["queries"].dtype
    weights = impl.attention_weights(**without_values(mixed))
    wide = name in ("queries", "keys")
    assert weights.dtype == (torch.float64 if wide else torch.float32)
    assert_close(weights, impl.attention_weights(**without_values(exact)), size)


@pytest.mark.spec("HEX-3.1b")
@given(seeing)
def test_an_uncompressed_cache_has_no_deviation(impl, x):
    same = dict(compressed_keys=x["keys"].clone(), compressed_values=x["values"].clone())
    epsilon = impl.attention_error(**x | same)
    assert_equal(epsilon, torch.zeros_like(epsilon))


@pytest.mark.spec("HEX-3.1b")
@given(comparing)
def test_the_deviation_is_the_distance_between_the_outputs(impl, x):
    original = {name: x[name] for name in ("queries", "keys", "values", "causal", "scale")}
    compressed = dict(keys=x["compressed_keys"], values=x["compressed_values"])
    gap = impl.attention(**original) - impl.attention(**original | compressed)
    expected = gap.double().square().sum(-1).sqrt()
    size = in_logits(x) * sum(largest(x[n]) for n in ("values", "compressed_values"))
    assert_close(impl.attention_error(**x), expected, size)


@pytest.mark.spec("HEX-3.1b")
@given(comparing, st.sampled_from([0.5, 4.0]))
def test_the_deviation_scales_with_the_values_and_ignores_which_cache_is_first(impl, x, power):
    epsilon = impl.attention_error(**x)
    names = ("values", "compressed_values")
    size = sum(largest(x[n]) for n in names) * in_logits(x)
    stretched = impl.attention_error(**x | {n: x[n] * power for n in names})
    assert_close(stretched, epsilon * power, size * power)
    swapped = dict(zip(CACHE, (x[n] for n in (*CACHE[2:], *CACHE[:2])), strict=True))
    assert_close(impl.attention_error(**x | swapped), epsilon, size)
