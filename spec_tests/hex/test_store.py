"""The store of masks: HEX §3.2. Never a wrong mask, never a crash."""

import re

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.hex.store_crashes import Counted, generate

SIZES = dict(tokens=8, channels=16, density=0.25)
REAL = dict(tokens=24, channels=32, density=0.125)
MASK = generate(8, 16, 0.25, 3)


@pytest.fixture
def made():
    """A generator that counts."""
    return Counted()


def only_file(directory):
    (file,) = directory.glob("*.csr")
    return file


@pytest.mark.spec("HEX-3.2c")
@pytest.mark.parametrize(
    "kind", [dict(), dict(near=True, density=0.3), dict(tile=True, block=12, density=0.25)]
)
def test_the_store_gives_the_mask_of_its_arguments(impl, tmp_path, kind):
    arguments = REAL | kind
    expected = impl.expander_mask(**arguments, seed=1)
    for directory in (None, tmp_path, tmp_path):
        assert_equal(impl.MaskStore(directory).mask(**arguments, seed=1), expected)


@pytest.mark.spec("HEX-3.2c")
def test_masks_of_different_arguments_do_not_meet(impl, tmp_path):
    kinds = [
        dict(),
        dict(seed=1),
        dict(density=0.25),
        dict(near=True, density=0.3),
        dict(tile=True, block=12, density=0.25),
        dict(tile=True, block=24),
        dict(tokens=48),
        dict(channels=48),
    ]
    store = impl.MaskStore(tmp_path, capacity=0)
    for kind in kinds + kinds:
        arguments = REAL | kind
        assert_equal(store.mask(**arguments), impl.expander_mask(**arguments))


@pytest.mark.spec("HEX-3.2c")
def test_a_mask_is_made_once_and_read_from_memory_then_from_disk(impl, tmp_path, made):
    store = impl.MaskStore(tmp_path, 2, made)
    for seed in (0, 1, 0, 1, 1):
        store.mask(**SIZES, seed=seed)
    assert made.calls == 2
    again = impl.MaskStore(tmp_path, 2, made)
    assert_equal(again.mask(**SIZES, seed=1), generate(8, 16, 0.25, 1))
    assert made.calls == 2


@pytest.mark.spec("HEX-3.2c")
def test_the_least_recently_used_mask_leaves_memory_first(impl, made):
    store = impl.MaskStore(None, 2, made)
    for seed in (0, 1, 0, 2):
        store.mask(**SIZES, seed=seed)
    assert made.calls == 3
    store.mask(**SIZES, seed=0)
    assert made.calls == 3
    store.mask(**SIZES, seed=1)
    assert made.calls == 4


@pytest.mark.spec("HEX-3.2c")
def test_what_a_caller_does_to_a_mask_stays_with_the_caller(impl, tmp_path, made):
    store = impl.MaskStore(tmp_path, 2, made)
    store.mask(**SIZES, seed=3).zero_()
    assert_equal(store.mask(**SIZES, seed=3), MASK)


@pytest.mark.spec("HEX-3.2c")
def test_a_file_weighs_four_bytes_an_entry(impl, tmp_path):
    impl.MaskStore(tmp_path).mask(96, 64, 0.25)
    entries = 96 * 16
    assert only_file(tmp_path).stat().st_size <= 4 * (entries + 96 + 3) + 160


@pytest.mark.parametrize(
    ("density", "error", "why"),
    [
        (float("nan"), ValueError, "density must be in [0, 1], got nan"),
        (1.5, ValueError, "density must be in [0, 1], got 1.5"),
        ("0.25", TypeError, "density must be a number, got '0.25'"),
        (True, TypeError, "density must be a number, got True"),
    ],
)
def test_the_store_refuses_a_density_as_the_generator_does(impl, density, error, why):
    with pytest.raises(error, match=re.escape(why)):
        impl.MaskStore(None).mask(8, 16, density)


def test_the_store_refuses_a_capacity_that_is_no_count(impl):
    with pytest.raises(ValueError, match="capacity must be >= 0, got -1"):
        impl.MaskStore(None, -1)
    with pytest.raises(TypeError, match="capacity must be an integer"):
        impl.MaskStore(None, 0.5)
    assert torch.equal(impl.MaskStore(None, 0, generate).mask(**SIZES, seed=3), MASK)
