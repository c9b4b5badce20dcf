"""The text every machine has: the sources of Python's standard library, and their docstrings."""

import hashlib
import sysconfig
from functools import cache
from pathlib import Path
from typing import Literal

Split = Literal["train", "heldout"]

SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "encodings"}
"""Other people's code, tests (which repeat themselves), and tables of characters."""

HELD_OUT = 0.04
"""The share of the files that training never sees."""


def is_held_out(name: str) -> bool:
    """Tell by its path alone whether a file is held out, the same for every version of Python."""
    digest = hashlib.sha256(f"kvspec {name}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT * 2**32


@cache
def files(split: Split) -> dict[str, str]:
    """Return the text of every file of a split by its path in the standard library, in order."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = {path.relative_to(root).as_posix(): path for path in root.rglob("*.py")}
    return {
        name: path.read_text(encoding="utf-8", errors="ignore")
        for name, path in sorted(paths.items())
        if not SKIPPED & set(name.split("/")) and is_held_out(name) == (split == "heldout")
    }


def joined(split: Split) -> str:
    """Return the files of a split one after the other."""
    return "\n\n".join(files(split).values())
