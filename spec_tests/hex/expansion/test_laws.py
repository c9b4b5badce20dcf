"""Vertex expansion, conductance and the spectral gap: HEX A.1, Definition 1."""

import math

import pytest
import torch
from hypothesis import given

from spec_tests.accuracy import assert_at_most, assert_close
from spec_tests.hex.spectrum.oracle import eigenvalues
from spec_tests.inputs import INPUTS

BALANCED = [(4, 3), (5, 3), (5, 4), (6, 3), (6, 4)]
UNBALANCED = [(4, 4, 3), (6, 6, 3), (6, 4, 4), (5, 5, 3), (8, 4, 3), (4, 8, 6)]


def number(value):
    return torch.tensor(value, dtype=torch.float64)


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
