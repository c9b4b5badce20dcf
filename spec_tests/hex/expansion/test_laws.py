"""Vertex expansion, conductance and the spectral gap: HEX A.1, Definition 1."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_at_most, assert_close
from spec_tests.hex.spectrum.oracle import eigenvalues
from spec_tests.hex.spectrum.strategies import any_mask
from spec_tests.inputs import INPUTS

BALANCED = [(4, 3), (5, 3), (5, 4), (6, 3), (6, 4)]
UNBALANCED = [(4, 4, 3), (6, 6, 3), (6, 4, 4), (5, 5, 3), (8, 4, 3), (4, 8, 6)]


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@st.composite
def at_most_half(draw):
    """A graph and a set of at most half of its vertices."""
    x = draw(INPUTS["cheeger_constant"])
    vertices = len(x["adjacency"])
    members = st.sets(st.integers(0, vertices - 1), min_size=1, max_size=vertices // 2)
    subset = torch.zeros(vertices, dtype=torch.bool)
    subset[sorted(draw(members))] = True
    return dict(**x, subset=subset)


@pytest.mark.spec("HEX-Def1")
@given(at_most_half())
def test_no_set_up_to_half_expands_less_than_the_cheeger_constant(impl, x):
    assert impl.cheeger_constant(x["adjacency"]) <= impl.vertex_expansion(**x)


@pytest.mark.spec("HEX-Def1")
@given(INPUTS["vertex_expansion"])
def test_the_boundary_is_outside_the_set(impl, x):
    inside, outside = int(x["subset"].sum()), int((~x["subset"]).sum())
    assert 0 <= impl.vertex_expansion(**x) <= outside / inside


@pytest.mark.spec("HEX-Def1")
@given(any_mask(least=1).filter(lambda x: sum(x["mask"].shape) <= 8))
def test_the_cheeger_constant_is_zero_where_the_graph_falls_apart(impl, x):
    h = impl.cheeger_constant(impl.bipartite_adjacency(x["mask"]))
    assert (h > 0) == impl.is_connected(x["mask"])


@pytest.mark.spec("HEX-Def1")
@pytest.mark.parametrize("vertices", [4, 5, 8, 9])
def test_rings_and_complete_graphs_have_the_known_constants(impl, vertices):
    rows = torch.arange(vertices)
    steps = (rows[:, None] - rows) % vertices
    half = vertices // 2
    ring, complete = (steps == 1) | (steps == vertices - 1), steps != 0
    assert impl.cheeger_constant(ring) == 2 / half
    assert impl.cheeger_constant(complete) == (vertices - half) / half
    assert impl.conductance(ring) == 1 / half
    assert impl.conductance(complete) == (vertices - half) / (vertices - 1)


@pytest.mark.spec("HEX-Def1", "HEX-A.1a")
@pytest.mark.parametrize(("vertices", "degree"), BALANCED)
def test_a_gap_forces_vertex_expansion(impl, vertices, degree):
    mask = impl.random_expander(vertices, vertices, degree).mask
    second = impl.second_singular_value(mask)
    h = impl.cheeger_constant(impl.bipartite_adjacency(mask))
    assert_at_most(number((degree - second) / (2 * degree)), number(h))


@pytest.mark.spec("HEX-Def1", "HEX-A.1a")
@pytest.mark.parametrize(("tokens", "channels", "degree"), UNBALANCED)
def test_conductance_is_between_half_the_gap_and_the_root_of_twice_the_gap(
    impl, tokens, channels, degree
):
    mask = impl.random_expander(tokens, channels, degree).mask
    first = math.sqrt(degree * (tokens * degree // channels))
    gap = 1 - impl.second_singular_value(mask) / first
    found = number(impl.conductance(impl.bipartite_adjacency(mask)))
    assert_at_most(number(gap / 2), found)
    assert_at_most(found, number(math.sqrt(2 * gap)))


@pytest.mark.spec("HEX-A.1a")
@given(INPUTS["spectral_gap"])
def test_the_gap_is_the_smaller_of_two_distances_from_the_first_eigenvalue(impl, x):
    first, *others = eigenvalues(x["adjacency"].int().tolist())
    other = [first, *others][-2 if x["bipartite"] else -1]
    distance = first - (abs(other) if x["two_sided"] else other)
    gap = number(impl.spectral_gap(**x))
    assert_close(gap, min(first - others[0], abs(distance)), scale=len(others) ** 2 + 1)


@pytest.mark.spec("HEX-A.1a")
@pytest.mark.parametrize(("tokens", "channels", "degree"), UNBALANCED)
@pytest.mark.parametrize("two_sided", [False, True])
def test_the_gap_of_a_mask_is_between_its_two_singular_values(
    impl, tokens, channels, degree, two_sided
):
    mask = impl.random_expander(tokens, channels, degree).mask
    first = math.sqrt(degree * (tokens * degree // channels))
    gap = impl.spectral_gap(impl.bipartite_adjacency(mask), True, two_sided)
    expected = first - impl.second_singular_value(mask)
    assert_close(number(gap), expected, sum(mask.shape) * first**2)


@pytest.mark.spec("HEX-A.1a")
@given(INPUTS["cheeger_constant"].filter(lambda x: len(x["adjacency"]) > 2), st.booleans())
def test_the_printed_gap_is_the_distance_to_the_second_eigenvalue_of_three(impl, x, bipartite):
    first, second, *_ = eigenvalues(x["adjacency"].int().tolist())
    gap = number(impl.spectral_gap(x["adjacency"], bipartite))
    assert_close(gap, first - second, scale=len(x["adjacency"]) ** 2)


@pytest.mark.spec("HEX-A.1a")
@pytest.mark.parametrize("sides", [2, 3, 4])
def test_two_sides_without_an_odd_ring_have_no_two_sided_gap_unless_told(impl, sides):
    # complete bipartite: the eigenvalues are plus and minus `sides`, and 0
    adjacency = impl.bipartite_adjacency(torch.ones(sides, sides) > 0)
    scale = sides**2
    assert_close(number(impl.spectral_gap(adjacency, False, True)), 0.0, scale)
    assert_close(number(impl.spectral_gap(adjacency, True, True)), float(sides), scale)
