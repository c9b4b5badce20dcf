"""Masks on disk in compressed sparse rows, and the most recent ones in memory."""

import hashlib
import io
import os
import secrets
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import compile_contract
from reference.contract.types import Whole
from reference.hex.expander import biregular_degrees, expander_mask
from reference.hex.spectrum import is_ramanujan

VERSION = 3
"""Goes up when a key names another mask, so that no older file is read."""

DIGEST, HEADER = 32, 128
"""Bytes of the digest, and of the header that numpy writes for a row of 32-bit numbers."""
STALE = 3600

hold = compile_contract(expander_mask)


class MaskStore:
    """Expander masks by size, density and seed: from memory, else from disk, else made anew.

    A file is written beside its place and moved there in one step, and begins with a SHA-256 of
    what it is for and of all that follows: a reader sees a whole mask, the right one, or knows
    that it does not. A mask that is read has the shape that was asked for, and the degrees and the
    certificate of an expander. Whatever is wrong with a file or with the directory is reported once
    as a `RuntimeWarning`, and the mask is made anew. Any number of processes may share a directory.

    Args:
        directory: where the files are, made if missing; `None` keeps masks in memory alone.
        capacity: number of masks held in memory, least recently used out first, at least 0.
        generate: makes a missing mask; takes the arguments of `mask`. A file of another generator
            than the default one is known by the generator's module and name, and its masks have
            any degrees.

    Raises:
        TypeError: `capacity` is not an integer.
        ValueError: `capacity` is negative, or `generate` is a lambda or a partial function, which
            nothing tells from others, and there is a directory.

    Source:
        HEX-3.2c.

    Reading:
        E-H6: the key holds the seed as well; one mask serves keys and values and all layers.
    """

    own_generator = staticmethod(expander_mask)
    certified = staticmethod(is_ramanujan)

    def __init__(
        self,
        directory: str | Path | None = None,
        capacity: int = 8,
        generate: Callable[..., Tensor] = expander_mask,
    ):
        checks.must_be("capacity", capacity, Whole)
        named = getattr(generate, "__qualname__", "")
        if directory is not None and ("<lambda>" in named or isinstance(generate, partial)):
            raise ValueError(f"generate must have a name, which names its files, got {generate}")
        self.directory = None if directory is None else Path(directory)
        self.capacity = capacity
        self.generate = generate
        self._recent: OrderedDict[str, np.ndarray] = OrderedDict()
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def mask(
        self,
        tokens: int,
        channels: int,
        density: float,
        seed: int = 0,
        near: bool = False,
        tile: bool = False,
        block: int = 96,
    ) -> Bool[Tensor, "tokens channels"]:
        """Return the mask that `expander_mask` returns for these arguments, a copy of one's own.

        Raises:
            TypeError, ValueError: as for `expander_mask`.
        """
        hold((tokens, channels, density, seed, near, tile, block), {})
        share = Fraction(str(density))
        own = self.generate is self.own_generator
        kind = "-near" * near + f"-tile{block}" * tile + ("" if own else _name(self.generate))
        key = f"{tokens}x{channels}-{share.numerator}in{share.denominator}-seed{seed}{kind}"
        with self._lock:
            packed = self._recent.pop(key, None)
        if packed is None:
            packed = self._load(key, tokens, channels)
            how = density, near, tile, block
            if packed is not None and own and not self.is_expander(packed, *how):
                packed = self._report(self._damage(key))
        if packed is None:
            made = self.generate(tokens, channels, density, seed, near, tile, block)
            packed = _pack(made)
            self._save(key, packed)
        with self._lock:
            self._recent[key] = packed
            while len(self._recent) > self.capacity:
                self._recent.popitem(last=False)
        return _unpack(packed)

    def path(self, key: str) -> Path:
        """Return the file of a key."""
        assert self.directory is not None
        return self.directory / f"{key}.v{VERSION}.csr"

    def is_expander(
        self, packed: np.ndarray, density: float, near: bool, tile: bool, block: int
    ) -> bool:
        """Whether a packed mask has the degrees and the certificate of `expander_mask`."""
        tokens, channels = packed[:2].tolist()
        offsets, columns = packed[2 : tokens + 3], packed[tokens + 3 :]
        rows = np.diff(offsets)
        if tile:
            entries, times = offsets[block], tokens // block
            same = np.array_equal(rows, np.tile(rows[:block], times))
            if not same or not np.array_equal(columns, np.tile(columns[:entries], times)):
                return False
            first = np.concatenate([[block, channels], offsets[: block + 1], columns[:entries]])
            return self.is_expander(first, density, near, False, block)
        degrees = biregular_degrees(tokens, channels, density, near)
        excess = np.bincount(columns, minlength=channels) - degrees.channel
        uneven = tokens * degrees.token % channels > 0
        if (rows != degrees.token).any() or (excess < 0).any() or (excess > uneven).any():
            return False
        return uneven or min(degrees) < 3 or self.certified(_unpack(packed))

    def _load(self, key: str, tokens: int, channels: int) -> np.ndarray | None:
        if self.directory is None:
            return None
        longest = DIGEST + HEADER + 4 * (3 + tokens + tokens * channels)
        try:
            with open(self.path(key), "rb") as file:
                raw = file.read(longest + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return self._report(f"cannot read masks from {self.directory}: {error.strerror}")
        sealed = hashlib.sha256(key.encode() + raw[DIGEST:]).digest() == raw[:DIGEST]
        packed = self._read(raw[DIGEST:], tokens, channels) if sealed else None
        return self._report(self._damage(key)) if packed is None else packed

    @staticmethod
    def _read(body: bytes, tokens: int, channels: int) -> np.ndarray | None:
        """Return what `_pack` returns for a mask of this shape, if a file holds that.

        The header is compared, not parsed: nothing is allocated because of what a file says.
        """
        header, count = io.BytesIO(), (len(body) - HEADER) // 4
        kind = dict(descr=np.dtype(np.int32).str, fortran_order=False, shape=(count,))
        np.lib.format.write_array_header_1_0(header, kind)
        if body[:HEADER] != header.getvalue() or len(body) != HEADER + 4 * count:
            return None
        packed = np.frombuffer(body, np.int32, offset=HEADER)
        offsets, columns = packed[2 : tokens + 3].astype(np.int64), packed[tokens + 3 :]
        steps = np.diff(offsets, prepend=0, append=len(columns))
        if packed[:2].tolist() != [tokens, channels] or len(steps) != tokens + 2:
            return None
        if steps[0] or steps[-1] or steps.min() < 0 or (columns % channels != columns).any():
            return None
        entries = np.repeat(np.arange(tokens), steps[1:-1]) * channels + columns
        return packed if (np.diff(entries) > 0).all() else None

    def _damage(self, key: str) -> str:
        return f"{self.path(key)} is damaged: the mask is made anew"

    def _save(self, key: str, packed: np.ndarray) -> None:
        if self.directory is None:
            return
        body = io.BytesIO()
        np.save(body, packed, allow_pickle=False)
        digest = hashlib.sha256(key.encode() + body.getvalue()).digest()
        # a name nobody else has: several processes may write this mask now
        temporary = self.directory / f".{key}.{secrets.token_hex(8)}.tmp"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._sweep()
            try:
                with open(temporary, "xb") as file:
                    file.write(digest + body.getvalue())
                os.replace(temporary, self.path(key))
            finally:
                temporary.unlink(missing_ok=True)
        except OSError as error:
            self._report(f"cannot write masks to {self.directory}: {error.strerror}")

    def _sweep(self) -> None:
        """Remove what killed processes left behind."""
        assert self.directory is not None
        for file in self.directory.glob(f".*-seed*.{'[0-9a-f]' * 16}.tmp"):
            # somebody else was faster, or owns the file: a mask can be written all the same
            with suppress(OSError):
                if time.time() - file.stat().st_mtime > STALE:
                    file.unlink()

    def _report(self, message: str) -> None:
        with self._lock:
            new = message not in self._reported
            self._reported.add(message)
        if new:
            warnings.warn(message, RuntimeWarning, stacklevel=4)


def _name(generate: Callable[..., Tensor]) -> str:
    """Return what tells a generator from others, for the names of files."""
    named = generate if hasattr(generate, "__qualname__") else type(generate)
    whole = f"{named.__module__}.{named.__qualname__}".encode()
    return f"-by{hashlib.sha256(whole).hexdigest()[:8]}"


def _pack(mask: Tensor) -> np.ndarray:
    """Return the shape, the offsets and the columns in one array: four bytes a kept entry."""
    rows = mask.cpu().numpy()
    offsets = np.concatenate([[0], rows.sum(1).cumsum()])
    return np.concatenate([rows.shape, offsets, rows.nonzero()[1]]).astype(np.int32)


def _unpack(packed: np.ndarray) -> Tensor:
    tokens, channels = packed[:2].tolist()
    offsets, columns = packed[2 : tokens + 3], packed[tokens + 3 :]
    mask = np.zeros((tokens, channels), bool)
    mask[np.repeat(np.arange(tokens), np.diff(offsets)), columns] = True
    return torch.from_numpy(mask)
