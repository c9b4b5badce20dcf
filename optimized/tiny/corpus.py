"""The corpus: the source files of Python's standard library, which every machine has."""

import hashlib
import sysconfig
from functools import cache
from pathlib import Path
from typing import Literal

Split = Literal["train", "heldout"]

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}
"""Folders to skip: third-party code, repetitive tests, and tables of characters."""

HELD_OUT = 0.04
"""The share of files that are held out from training."""


def is_held_out(name: str) -> bool:
    """Whether a file is held out, by its path alone, so that all Python versions agree."""
    digest = hashlib.sha256(f"kvspec {name}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT * 2**32


@cache
def files(split: Split) -> dict[str, str]:
    """Return the texts of a split's files, by their sorted paths in the standard library."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {
        name: path.read_text(encoding="utf-8", errors="ignore")
        for name, path in sorted(paths.items())
        if not SKIPPED & set(name.split("/")) and is_held_out(name) == (split == "heldout")
    }
