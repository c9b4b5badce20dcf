"""Mutants of the store of masks."""

import hashlib
import time

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "MaskStore",
    "what is in memory is handed out itself, for callers to write to",
    killer="hex/test_store.py::test_what_a_caller_does_to_a_mask_stays_with_the_caller",
)
class SharedMasks(reference.MaskStore):
    """Remember masks in a dictionary and return them."""

    def mask(self, *arguments, **named):
        """Look the arguments up."""
        masks = self.__dict__.setdefault("masks", {})
        key = (arguments, *named.items())
        if key not in masks:
            masks[key] = super().mask(*arguments, **named)
        return masks[key]


@mutant(
    "MaskStore",
    "the seed is not part of the key",
    killer="hex/test_store.py::test_masks_of_different_arguments_do_not_meet",
)
class SeedlessStore(reference.MaskStore):
    """File masks by size and density alone."""

    def mask(self, *arguments, **named):
        """Forget the seed."""
        return super().mask(*arguments, **{**named, "seed": 0})


@mutant(
    "MaskStore",
    "a file is believed if the first byte of its digest is right",
    killer="hex/test_store_damage.py::test_every_flipped_bit_has_the_mask_made_anew",
)
class HastyStore(reference.MaskStore):
    """Look at as little of the digest as possible."""

    def _load(self, key):
        """Mend all of the digest but its first byte."""
        if self.directory is None or not self.path(key).exists():
            return None
        raw = self.path(key).read_bytes()
        digest = hashlib.sha256(key.encode() + raw[32:]).digest()
        if raw[:1] == digest[:1]:
            self.path(key).write_bytes(digest + raw[32:])
        return super()._load(key)


@mutant(
    "MaskStore",
    "whatever looks like a leftover is removed, and what cannot be is in the way",
    killer="hex/test_store_damage.py::test_what_killed_writers_left_is_swept_after_an_hour",
)
class ZealousStore(reference.MaskStore):
    """Sweep every hidden temporary file."""

    def _sweep(self):
        """Remove them all."""
        for file in () if self.directory is None else self.directory.glob(".*.tmp"):
            if time.time() - file.stat().st_mtime > 3600:
                file.unlink()
