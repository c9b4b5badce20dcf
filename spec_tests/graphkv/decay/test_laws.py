"""Signals along the graph: GraphKV §4.3, §6.3, §7.2 and Algorithm 2."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from spec_tests.accuracy import (
    assert_as_accurate,
    assert_at_most,
    assert_close,
    assert_equal,
    assert_rounded_once,
)
from spec_tests.from_signature import choices
from spec_tests.graphkv.decay import oracle
from spec_tests.graphkv.decay.strategies import banish, decay, enhance
from spec_tests.graphkv.graph.oracle import algorithm_1, as_float64
from spec_tests.graphkv.graph.strategies import lattice
from spec_tests.hubkv.discount.oracle import fractions
from spec_tests.inputs import INPUTS
from spec_tests.strategies import booleans, grid


@st.composite
def similarity_graphs(draw):
    """Keys and scores for a graph that the reference builds, with exact edges."""
    count = draw(st.integers(1, 7))
    keys, scores = draw(lattice(count, 4)), draw(grid(count, high=6))
    return keys, scores, draw(st.integers(0, min(count, 4))), draw(st.integers(0, count))


def every_signal(impl, x):
    """Return the scores after each of the three signals."""
    enhanced = impl.enhance(**{name: value for name, value in x.items() if name != "rule"})
    banished = impl.banish(**{name: x[name] for name in ("scores", "neighbours", "rounds")})
    return impl.decay(**x), enhanced, banished


@pytest.mark.spec("GraphKV-4")
@given(decay(low=0), st.data())
def test_one_source_takes_its_edge_off_the_score(impl, x, data):
    shape = (*x["scores"].shape[:-1], 1, x["scores"].shape[-1])
    edge = data.draw(grid(*shape))
    reached = data.draw(booleans(*shape))
    x |= dict(weights=edge, neighbours=reached, rounds=1)
    left = 1 - x["strength"] * edge[..., 0, :].double() * reached[..., 0, :]
    for rule in choices(reference.decay)["rule"]:
        assert_close(impl.decay(**x | dict(rule=rule)), x["scores"] * left)


@pytest.mark.spec("GraphKV-5", "GraphKV-Alg2")
@given(similarity_graphs(), st.integers(0, 3))
def test_product_is_equation_5_and_sequential_is_algorithm_2(impl, x, rounds):
    keys, scores, sources, count = x
    chosen = impl.source_tokens(scores, sources)
    weights = impl.edges(keys.double(), chosen)
    reached = impl.neighbours(weights, chosen, count)
    graph = algorithm_1(fractions(keys), fractions(scores), sources)
    for rule, printed in (("product", oracle.equation_5), ("sequential", oracle.algorithm_2)):
        actual = impl.decay(scores.double(), weights, reached, rounds, rule=rule)
        expected = as_float64(printed(*graph, fractions(scores), rounds, count))
        assert_close(actual, expected, scale=expected.abs())


@pytest.mark.spec("GraphKV-7.2")
@given(enhance(low=0))
def test_enhanced_is_at_least_the_score_which_is_at_least_the_decayed(impl, x):
    assert_at_most(impl.decay(**x), x["scores"])
    assert_at_most(x["scores"], impl.enhance(**x))


@pytest.mark.spec("GraphKV-7.2")
@given(enhance())
def test_enhancing_is_decaying_along_edges_of_the_other_sign(impl, x):
    turned = x | dict(weights=-x["weights"])
    assert_as_accurate(impl.enhance(**x), reference.decay, turned)


@pytest.mark.spec("GraphKV-5")
@given(lattice(6, 16, zero=False), grid(7), st.integers(1, 3), st.integers(-3, 3))
def test_a_duplicate_key_decays_to_exactly_0(impl, keys, scores, rounds, power):
    keys = torch.cat([keys, keys[:1] * 2.0**power])
    source = torch.tensor([0])
    weights = impl.edges(keys, source)
    reached = impl.neighbours(weights, source, 6)
    assert impl.decay(scores, weights, reached, rounds)[-1] == 0


@pytest.mark.spec("GraphKV-5", "GraphKV-7.2")
@given(decay(), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_a_token_that_no_source_reaches_is_untouched(impl, x, dtype):
    x |= dict(scores=(x["scores"] * 0.7).to(dtype))
    alone = ~x["neighbours"].any(-2)
    for refined in every_signal(impl, x):
        assert_equal(refined[alone], x["scores"][alone])


@pytest.mark.spec("GraphKV-6.3")
@given(decay(), st.sampled_from([torch.float32, torch.bfloat16, torch.float64]))
def test_no_round_is_the_identity_for_every_signal(impl, x, dtype):
    x |= dict(scores=(x["scores"] * 0.7).to(dtype), rounds=0)
    for refined in every_signal(impl, x):
        assert_equal(refined, x["scores"])


@pytest.mark.spec("GraphKV-7.2")
@given(banish(), st.integers(1, 3))
def test_the_evicted_signal_is_minus_infinity_on_exactly_the_neighbours(impl, x, rounds):
    banished = impl.banish(**x | dict(rounds=rounds))
    assert_equal(banished == -torch.inf, x["neighbours"].any(-2))


@pytest.mark.spec("GraphKV-5")
@given(INPUTS["decay"])
def test_half_precision_is_rounded_once(impl, x):
    x |= dict(rounds=3)
    half = {k: v.bfloat16() if k in ("scores", "weights") else v for k, v in x.items()}
    wide = {k: v.float() if k in ("scores", "weights") else v for k, v in half.items()}
    losses = (x["strength"] * x["weights"].abs() * x["neighbours"]).sum(-2)
    terms = x["scores"] * (1 + losses) ** x["rounds"]  # each term of the difference rounds
    assert_rounded_once(impl.decay(**half), impl.decay(**wide), terms)
