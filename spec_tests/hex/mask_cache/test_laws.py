"""The store of masks: HEX §3.2. It returns no wrong mask and never crashes."""

import hashlib
import io
import os
import resource
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
import torch

from spec_tests.accuracy import assert_equal

pytestmark = pytest.mark.spec("HEX-3.2c")

SIZES = dict(tokens=8, channels=16, density=0.25)
REAL = dict(tokens=24, channels=32, density=0.125)


def make_seeded_mask(tokens, channels, _density, seed, *_kind):
    """Return a mask that is fast to make and depends on its seed only."""
    entries = torch.arange(tokens * channels).reshape(tokens, channels)
    return (entries * (2 * seed + 3) % 509) % 8 == 0


class Counted:
    """A generator that counts its calls, or refuses them."""

    def __init__(self):
        self.calls, self.refuses = 0, False

    def __call__(self, *arguments):
        """Generate a mask and count the call."""
        if self.refuses:
            raise InterruptedError
        self.calls += 1
        return make_seeded_mask(*arguments)


MASK = make_seeded_mask(8, 16, 0.25, 3)


@pytest.fixture
def made():
    """A generator that counts its calls."""
    return Counted()


def only_file(directory):
    (file,) = directory.glob("*.csr")
    return file


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


def test_a_mask_is_made_once_and_read_from_memory_then_from_disk(impl, tmp_path, made):
    store = impl.MaskStore(tmp_path, 2, made)
    for seed in (0, 1, 0, 1, 1):
        store.mask(**SIZES, seed=seed)
    assert made.calls == 2
    again = impl.MaskStore(tmp_path, 2, made)
    assert_equal(again.mask(**SIZES, seed=1), make_seeded_mask(8, 16, 0.25, 1))
    assert made.calls == 2


def test_what_a_caller_does_to_a_mask_stays_with_the_caller(impl, tmp_path, made):
    store = impl.MaskStore(tmp_path, 2, made)
    store.mask(**SIZES, seed=3).zero_()
    assert_equal(store.mask(**SIZES, seed=3), MASK)


def reads_right(impl, directory, made, count):
    """Assert that a damaged file is reported once, the mask is right, and the file is replaced."""
    store = impl.MaskStore(directory, 0, made)
    with pytest.warns(RuntimeWarning, match="damaged") as caught:
        assert_equal(store.mask(**SIZES, seed=3), MASK)
    assert len(caught) == 1
    assert made.calls == count
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_equal(impl.MaskStore(directory, 0, made).mask(**SIZES, seed=3), MASK)
    assert made.calls == count


def test_every_flipped_bit_has_the_mask_made_anew(impl, tmp_path, made):
    impl.MaskStore(tmp_path, 0, made).mask(**SIZES, seed=3)
    made.refuses = True
    file = only_file(tmp_path)
    good = file.read_bytes()
    with file.open("r+b", buffering=0) as raw:
        for bit in range(8 * len(good)):
            byte = bit // 8
            os.pwrite(raw.fileno(), bytes([good[byte] ^ 1 << bit % 8]), byte)
            store = impl.MaskStore(tmp_path, 0, made)
            with pytest.warns(RuntimeWarning) as caught, pytest.raises(InterruptedError):
                store.mask(**SIZES, seed=3)
            assert len(caught) == 1
            os.pwrite(raw.fileno(), good[byte : byte + 1], byte)


def seal(file, array, *change):
    """Write an array into a file of the store, with a digest that fits, as anybody can."""
    body, key = io.BytesIO(), file.name.rpartition(".v")[0]
    np.save(body, array)
    body = body.getvalue().replace(*change) if change else body.getvalue()
    file.write_bytes(hashlib.sha256(key.encode() + body).digest() + body)


def csr(rows):
    """Return a mask as a file holds it: its shape, offsets and columns."""
    offsets = np.concatenate([[0], rows.sum(1).cumsum(0)])
    return np.concatenate([rows.shape, offsets, rows.numpy().nonzero()[1]]).astype(np.int32)


GOOD = csr(MASK)
JUNK = {
    "a pickle": (np.array([None], dtype=object),),
    "no header": (GOOD, b"NUMPY", b"NOTHN"),
    "a row of floats": (GOOD.astype(np.float32),),
    "a header of 2 GB": (np.zeros(4, np.int32), b"(4,), }        ", b"(536870912,), }"),
    "a mask of 2 GB": (np.array([2**15, 2**16, *[0] * 10], np.int32),),
    "too few channels": (csr(MASK[:, :8]),),
    "negative columns": (GOOD - (np.arange(GOOD.size) == 11),),
    "falling offsets": (np.r_[GOOD[:3], GOOD[10], GOOD[4:]],),
    "one column twice": (np.r_[GOOD[:12], GOOD[11], GOOD[13:]],),
    "half a file": (GOOD[: GOOD.size // 2],),
    "a long file": (np.zeros(10**6, np.int32),),
}


@pytest.mark.parametrize("junk", JUNK)
def test_a_sealed_file_of_anything_but_such_a_mask_is_replaced(impl, tmp_path, made, junk):
    impl.MaskStore(tmp_path, 0, made).mask(**SIZES, seed=3)
    seal(only_file(tmp_path), *JUNK[junk])
    tracemalloc.start()
    try:
        reads_right(impl, tmp_path, made, 2)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "kind", [dict(), dict(near=True, density=0.3), dict(tile=True, block=12, density=0.25)]
)
def test_a_sealed_mask_without_degrees_or_certificate_is_replaced(impl, tmp_path, kind):
    arguments = REAL | kind
    expected = impl.MaskStore(tmp_path).mask(**arguments)
    moved, taken = expected.clone(), expected[0].int().argmax()
    moved[0, taken], moved[0, (~expected[0]).int().argmax()] = False, True
    apart = torch.ones(3, 4).kron(torch.eye(8)) == 1  # eight complete graphs, of the same degrees
    halves = torch.cat([expected[:12], expected[:12].roll(1, 0)])
    for wrong in (
        ~expected,
        torch.zeros_like(expected),
        moved,
        halves if "tile" in kind else apart,
    ):
        seal(only_file(tmp_path), csr(wrong))
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert_equal(impl.MaskStore(tmp_path).mask(**arguments), expected)


def test_stores_of_different_generators_share_no_file(impl, tmp_path, made):
    def make_nothing(tokens, channels, *_arguments):
        return torch.zeros(tokens, channels, dtype=torch.bool)

    sizes = REAL | dict(seed=3)
    for _ in range(2):
        assert_equal(impl.MaskStore(tmp_path).mask(**sizes), impl.expander_mask(**sizes))
        assert not impl.MaskStore(tmp_path, 0, make_nothing).mask(**sizes).any()
        assert impl.MaskStore(tmp_path, 0, made).mask(**sizes).any()
    assert made.calls == 1


@pytest.mark.parametrize("nameless", [lambda *_: MASK, partial(make_seeded_mask, seed=0)])
def test_a_generator_without_a_name_has_no_files(impl, tmp_path, nameless):
    with impl.refuses("generate must have a name"):
        impl.MaskStore(tmp_path, generate=nameless)
    impl.MaskStore(generate=nameless)


def test_a_directory_that_cannot_be_made_costs_one_warning(impl, tmp_path, made):
    (tmp_path / "file").write_text("")
    store = impl.MaskStore(tmp_path / "file" / "masks", 1, made)
    with pytest.warns(RuntimeWarning, match="cannot write masks") as caught:
        masks = [store.mask(**SIZES, seed=seed) for seed in (3, 4, 3, 3)]
    assert len(caught) == 1
    assert_equal(masks[1], make_seeded_mask(8, 16, 0.25, 4))
    assert_equal(masks[3], MASK)
    assert made.calls == 3


def test_a_file_that_cannot_be_read_costs_a_warning(impl, tmp_path, made):
    store = impl.MaskStore(tmp_path, 0, made)
    store.mask(**SIZES, seed=3)
    file = only_file(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.warns(RuntimeWarning) as caught:
        assert_equal(store.mask(**SIZES, seed=3), MASK)
    causes = [str(warning.message).split(" masks")[0] for warning in caught]
    assert causes == ["cannot read", "cannot write"]


def test_a_full_disk_leaves_nothing_behind_and_costs_one_warning(impl, tmp_path, made):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    store = impl.MaskStore(tmp_path, 8, made)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.warns(RuntimeWarning, match="cannot write masks") as caught:
            masks = [store.mask(**SIZES, seed=seed) for seed in (3, 4, 3)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(caught) == 1
    assert_equal(masks[2], MASK)
    assert made.calls == 2
    assert not list(tmp_path.iterdir())


def test_what_killed_writers_left_is_swept_after_an_hour(impl, tmp_path, made):
    old, new = (tmp_path / f".8x16-1in4-seed{seed}.{seed:016x}.tmp" for seed in (1, 2))
    foreign = tmp_path / ".editor.tmp"
    for file in (old, new, foreign):
        file.write_bytes(b"half a mask")
    os.utime(old, (0, 0))
    os.utime(foreign, (0, 0))
    impl.MaskStore(tmp_path, 0, made).mask(**SIZES)
    assert not old.exists()
    assert new.exists()
    # the store removes only files that it wrote
    assert foreign.exists()
