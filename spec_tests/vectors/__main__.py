"""Build the archive of test vectors: `python -m spec_tests.vectors OUT.tar.gz`."""

import hashlib
import json
import sys
from pathlib import Path

from optimized._atomic_files import write_atomically
from spec_tests.vectors.archive import files, packed


def main(words: list[str]) -> str:
    """Write the archive, and return its manifest as text."""
    if len(words) != 1 or not words[0].endswith(".tar.gz"):
        raise SystemExit(f"usage: python -m spec_tests.vectors OUT.tar.gz, got {words}")
    try:
        found = files()
        content = packed(found)
        write_atomically(Path(words[0]), content)
    except OSError as error:  # no docs, or no such folder
        raise SystemExit(f"{words[0]} is not written: {error}") from error
    said = json.loads(found["manifest.json"])
    counts = said["counts"]
    return (
        f"{words[0]}: {counts['vectors']} vectors of {counts['functions']} functions, "
        f"{counts['traces']} traces of {counts['steps']} steps, {len(content)} bytes\n"
        f"version {said['version']}, digest of the content {said['digest']}\n"
        f"sha256 of the file {hashlib.sha256(content).hexdigest()}"
    )


if __name__ == "__main__":
    print(main(sys.argv[1:]))
