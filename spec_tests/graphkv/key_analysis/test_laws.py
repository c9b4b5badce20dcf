"""The paper's analysis of keys: GraphKV §3, §6.3 and Table 5."""

from decimal import ROUND_HALF_UP, Decimal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from spec_tests.accuracy import assert_as_accurate, assert_at_most, assert_close, assert_equal
from spec_tests.graphkv.graph.strategies import lattice
from spec_tests.graphkv.key_analysis.strategies import principal_components
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid

TABLE_5 = [
    (128, "0.016"),
    (256, "0.031"),
    (512, "0.063"),
    (1024, "0.125"),
    (2048, "0.250"),
    (16_000, "1.953"),
    (32_000, "3.906"),
    (64_000, "7.813"),
    (128_000, "15.625"),
]


@pytest.mark.spec("GraphKV-Obs", "GraphKV-1")
@given(lattice(2, 7, 16))
def test_the_matrix_is_the_graph_with_every_token_a_source(impl, keys):
    every = torch.arange(7).expand(2, 7).contiguous()
    assert_equal(impl.cosine_matrix(keys), impl.edges(keys, every))


@pytest.mark.spec("GraphKV-Obs")
@given(INPUTS["cosine_distribution"])
def test_the_distribution_is_that_of_the_pairs_of_different_tokens(impl, x):
    found, matrix = impl.cosine_distribution(**x), impl.cosine_matrix(x["keys"]).double()
    tokens = x["keys"].shape[-2]
    pairs = [matrix[..., i, j] for i in range(tokens) for j in range(i)]
    pairs = torch.stack(pairs, -1) if pairs else matrix.new_zeros(*matrix.shape[:-2], 1)
    mean = pairs.mean(-1, keepdim=True)
    assert_close(found.mean, mean[..., 0])
    assert_close(found.variance, (pairs - mean).square().mean(-1))


@pytest.mark.spec("GraphKV-Obs")
@given(INPUTS["cosine_distribution"])
def test_a_bin_counts_the_pairs_between_its_edges(impl, x):
    counts, bins = impl.cosine_distribution(**x).histogram, x["bins"]
    matrix, tokens = impl.cosine_matrix(x["keys"]), x["keys"].shape[-2]
    expected = torch.zeros_like(counts)
    for i in range(tokens):
        for j in range(i):
            index = ((matrix[..., i, j] + 1) * bins / 2).floor().clamp(max=bins - 1)
            expected += index[..., None] == torch.arange(bins)
    assert_equal(counts, expected)


@pytest.mark.spec("GraphKV-PCA")
@given(principal_components())
def test_components_vary_less_and_less(impl, x):
    variance = impl.principal_components(**x | dict(components=4)).double().square().sum(-2).float()
    total = variance.sum(-1, keepdim=True)  # a variance of 0 may be a rounding error of the total
    assert_at_most(variance[..., 1:] + total, variance[..., :-1] + total)


@pytest.mark.spec("GraphKV-PCA")
@given(INPUTS["principal_components"])
def test_shifting_the_keys_changes_no_projection(impl, x):
    shifted = impl.principal_components(**x | dict(keys=x["keys"] + 3))
    assert_as_accurate(shifted, reference.principal_components, x)


@pytest.mark.spec("GraphKV-PCA")
@given(grid(6, low=-8, high=8, scale=1.0), st.sampled_from([-4.0, -1.0, 2.0]), st.integers(0, 3))
def test_an_axis_points_where_its_largest_coordinate_is_positive(impl, along, slope, channel):
    direction = torch.ones(4)
    direction[channel] = slope * 4
    projected = impl.principal_components(along[:, None] * direction, 1)[:, 0]
    sign = 1 if slope > 0 else -1
    centred = (along.double() - along.double().mean()) * direction.double().norm()
    assert_close(projected, sign * centred, scale=centred.abs().amax())


@pytest.mark.spec("GraphKV-Tab5")
@pytest.mark.parametrize(("tokens", "printed"), TABLE_5)
def test_table_5_is_reproduced(impl, tokens, printed):
    gigabytes = Decimal(impl.kv_bytes(tokens)) / 2**30
    assert str(gigabytes.quantize(Decimal("0.001"), ROUND_HALF_UP)) == printed
