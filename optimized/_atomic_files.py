"""Writing a file in one step: a reader finds the old content or the new one, never a part."""

import os
from pathlib import Path


def write_atomically(file: Path, content: str | bytes) -> None:
    """Write text as UTF-8, or bytes, to a file beside the given one, then rename that."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
