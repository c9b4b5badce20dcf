"""Digests of the vectors that a version has published: `published_vectors.txt`.

`python -m spec_tests.internal.project.published_vectors` adds a line for each new vector, under the
version of `pyproject.toml`. It is run before a version is tagged, and changes no earlier line.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from optimized._atomic_files import write_atomically
from spec_tests.index import HERE
from spec_tests.report.report_data import suite_version

FILE = Path(__file__).with_suffix(".txt")
NAMES = ("vectors.json", "generated.json", "traces.json")
"""Names of the files that hold vectors."""
REMARKS = {"hunts", "source", "origin", "flags", "reading"}
"""Fields of a vector that only describe it, and may change."""


class Published(NamedTuple):
    """The version that published a vector first, and the digest of what it published."""

    version: str
    digest: str


def digest(vector: dict[str, Any]) -> str:
    """Return the digest of a vector: of its call, its result and its equations."""
    binding = {name: value for name, value in vector.items() if name not in REMARKS}
    return hashlib.sha256(json.dumps(binding, sort_keys=True).encode()).hexdigest()[:16]


def digests(root: Path = HERE) -> dict[str, str]:
    """Return the digest of each vector under a folder, by its path such as `hex/csr/empty-row`."""
    found: dict[str, str] = {}
    for file in (file for name in NAMES for file in sorted(root.rglob(name))):
        for vector in json.loads(file.read_text()):
            path = f"{file.parent.relative_to(root).as_posix()}/{vector['id']}"
            if path in found:
                raise ValueError(f"{file}: the id {vector['id']} must be unique in its folder")
            found[path] = digest(vector)
    return found


def published() -> dict[str, Published]:
    """Return the record of each published vector, by its path."""
    lines = (line.split() for line in FILE.read_text().splitlines()) if FILE.exists() else ()
    return {path: Published(version, digest) for version, digest, path in lines}


def silent_changes(now: dict[str, str], before: dict[str, Published], changelog: str) -> list[str]:
    """Return the published vectors that changed or are missing, and are not listed as removed."""
    sections = (text.partition("\n## ")[0] for text in changelog.split("\n### "))
    removed = " ".join(text for text in sections if text.startswith("Removed"))
    changed = (path for path, (_, digest) in before.items() if now.get(path) != digest)
    return [path for path in changed if f"`{path}`" not in removed]


def record() -> None:
    """Add a line for each vector that no version has published."""
    version, before = suite_version(), published()
    new = {path: Published(version, now) for path, now in digests().items() if path not in before}
    lines = (f"{version} {digest} {path}\n" for path, (version, digest) in (before | new).items())
    write_atomically(FILE, "".join(lines))
    print(f"{len(new)} new vectors, {len(before)} published before")


if __name__ == "__main__":
    record()
