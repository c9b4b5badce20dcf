"""The spectrum of a mask: HEX §3.2, A.1, Definition 2."""

import math

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from spec_tests.accuracy import assert_at_most, assert_close
from spec_tests.hex.expander.strategies import biregular
from spec_tests.hex.random_biregular.strategies import seeds
from spec_tests.hex.spectrum.oracle import (
    circulant_eigenvalues,
    eigenvalues,
    singular_value_error_scale,
)
from spec_tests.hex.spectrum.strategies import small_ramanujan_mask
from spec_tests.inputs import INPUTS
from spec_tests.strategies import booleans, grid


@st.composite
def vectors_on_an_expander(draw):
    """Sizes, a seed, a vector on the channels, and a set of tokens and one of channels."""
    x = draw(biregular())
    return (
        dict(**x, seed=draw(seeds)),
        draw(grid(x["channels"], low=-8, high=8, dtype=torch.float64)),
        draw(booleans(x["tokens"])),
        draw(booleans(x["channels"])),
    )


def mask_and_second(impl, sizes):
    """Return a mask and its second singular value."""
    mask = impl.random_expander(**sizes).mask
    return mask, impl.second_singular_value(mask)


def number(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.spec("HEX-Def2")
@given(st.integers(3, 300))
def test_the_balanced_bound_is_the_unbalanced_one_at_equal_degrees(impl, degree):
    assert_close(number(impl.ramanujan_bound(degree, degree)), 2 * math.sqrt(degree - 1))


@pytest.mark.spec("HEX-Def2")
@given(INPUTS["second_singular_value"])
@example(dict(mask=torch.ones(2, 2).triu().bool()))  # square, but not normal
def test_the_second_singular_value_is_the_second_of_the_mask(impl, x):
    rows = x["mask"].int()
    squares = eigenvalues((rows @ rows.T).tolist())[: min(rows.shape)]
    exact = squares[1] if len(squares) > 1 else 0.0
    second = number(impl.second_singular_value(x["mask"]))
    assert_close(second**2, exact, singular_value_error_scale(x["mask"]) ** 2)


def circulant(size, steps):
    """Return the mask in which each token has the channels at these distances after it."""
    rows = torch.arange(size)
    ahead = (rows - rows[:, None]) % size
    return torch.isin(ahead, torch.tensor(sorted(steps), dtype=torch.int64))


@pytest.mark.spec("HEX-Def2")
@pytest.mark.parametrize("degree", [3, 10, 200])
def test_large_circulant_masks_have_the_singular_values_of_fourier(impl, degree):
    steps = set(np.random.RandomState(degree).permutation(264)[:degree].tolist())
    mask = circulant(264, steps)
    exact = sorted(map(abs, circulant_eigenvalues(264, steps)))[-2]
    assert_close(number(impl.second_singular_value(mask)), exact, singular_value_error_scale(mask))


@pytest.mark.spec("HEX-Def2", "HEX-3.2b")
@pytest.mark.parametrize(("size", "degrees"), [(15, [3, 4]), (16, [3, 4]), (300, range(260, 275))])
def test_bands_are_ramanujan_up_to_the_degree_that_fourier_gives(impl, size, degrees):
    # a band of neighbours is the worst expander among connected circulant graphs
    verdicts = []
    for degree in degrees:
        second = math.sin(math.pi * degree / size) / math.sin(math.pi / size)
        verdicts.append(impl.is_ramanujan(circulant(size, range(degree))))
        assert verdicts[-1] == (second <= 2 * math.sqrt(degree - 1))
    assert len(set(verdicts)) == (1 if size == 16 else 2)


@pytest.mark.spec("HEX-Def2")
@pytest.mark.parametrize("shape", [(257, 257), (300, 260)])
@pytest.mark.parametrize("kept", [False, True])
def test_a_large_mask_of_nothing_or_everything_has_no_second_singular_value(impl, shape, kept):
    mask = torch.full(shape, kept)
    assert_close(number(impl.second_singular_value(mask)), 0.0, singular_value_error_scale(mask))


@pytest.mark.spec("HEX-3.2e")
@given(vectors_on_an_expander())
def test_what_is_orthogonal_to_the_constant_vector_contracts(impl, x):
    mask, second = mask_and_second(impl, x[0])
    signal = x[1] - x[1].mean()
    out = mask.double() @ signal
    slack = singular_value_error_scale(mask) * x[1].abs().max()
    assert_at_most(out.norm() + slack, second * signal.norm() + slack)


@pytest.mark.spec("HEX-3.2f")
@given(vectors_on_an_expander())
def test_two_steps_of_the_walk_contract_by_the_squared_ratio(impl, x):
    mask, second = mask_and_second(impl, x[0])
    token_degree, channel_degree = int(mask[0].sum()), int(mask[:, 0].sum())
    start = x[1].abs() / x[1].abs().sum().clamp(min=1 / 16)
    on_tokens = mask.double() @ start / channel_degree
    after = mask.double().T @ on_tokens / token_degree
    assert_close(after.sum(), start.sum(), singular_value_error_scale(mask))
    before, mixed = start - start.mean(), after - after.mean()
    slack, ratio = singular_value_error_scale(mask), second**2 / (token_degree * channel_degree)
    assert_at_most(mixed.norm() + slack, ratio * before.norm() + slack)


@pytest.mark.spec("HEX-3.2d", "HEX-3.2e")
@given(vectors_on_an_expander())
def test_any_two_sets_share_about_their_share_of_the_entries(impl, x):
    mask, second = mask_and_second(impl, x[0])
    left, _, right = torch.linalg.svd(mask.double())
    slack = singular_value_error_scale(mask)
    # the sets at which the second singular vectors are positive are the least even
    for rows, columns in (x[2:], (left[:, 1] > 0, right[1] > 0)):
        found = mask[rows][:, columns].sum().double()
        expected = mask.double().mean() * rows.sum() * columns.sum()
        outside = (1 - rows.double().mean()) * (1 - columns.double().mean())
        allowed = second * (rows.sum() * columns.sum() * outside).sqrt()
        assert_at_most((found - expected).abs() + slack, allowed + slack)


@pytest.mark.spec("HEX-A.1a")
@given(small_ramanujan_mask(), st.integers(1, 3))
def test_the_first_singular_value_occurs_once_for_each_component(impl, block, parts):
    mask = torch.block_diag(*[block] * parts) > 0
    first = math.sqrt(int(block[0].sum()) * int(block[:, 0].sum()))
    values = torch.linalg.svdvals(mask.double())
    # numbers of common neighbours are integers, so that other values are at least 1 below
    assert int((values > first - 0.5).sum()) == parts == impl.component_count(mask)
    second = impl.second_singular_value(block) if parts == 1 else first
    assert_close(number(impl.second_singular_value(mask)), second, singular_value_error_scale(mask))


@pytest.mark.spec("HEX-Def2")
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_degrees_below_three_are_not_ramanujan(impl, degree):
    rows = torch.arange(5)
    assert not impl.is_ramanujan((rows[:, None] - rows) % 5 < degree)


@pytest.mark.spec("HEX-3.2b")
@given(vectors_on_an_expander(), st.integers(2, 4))
def test_tiling_multiplies_the_second_singular_value_by_the_root_of_the_tiles(impl, x, tiles):
    mask, second = mask_and_second(impl, x[0])
    tiled = mask.repeat(tiles, 1)
    found = number(impl.second_singular_value(tiled))
    assert_close(found**2, tiles * second**2, singular_value_error_scale(tiled) ** 2)


@pytest.mark.spec("HEX-3.2b", "HEX-Tab5")
def test_85_tiles_are_three_times_over_the_bound_of_the_prompt_they_make(impl):
    mask = impl.expander_mask(8160, 1024, 0.03125, tile=True)
    sparse = csr_array(mask.numpy(), dtype=float)
    second, first = np.asarray(svds(sparse, 2, v0=np.eye(1024)[0], return_singular_vectors=False))
    bound = impl.ramanujan_bound(32, 255)
    assert_close(number(first), math.sqrt(32 * 255), first**2)
    assert 62.9 <= second <= 64.3
    assert 2.9 * bound < second
    assert 21.5 <= bound <= 21.52
