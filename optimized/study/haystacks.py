"""The texts in which tasks are hidden: prose, code and noise that every machine has, or a file."""

from collections.abc import Callable
from pathlib import Path

from optimized.tiny.corpus import files

PIECE = 160
"""Longer lines are cut at spaces, so that a fact can be inserted nearly anywhere."""


def prose() -> str:
    """Return the documentation of Python's language, which is part of its library."""
    from pydoc_data.topics import topics

    return "\n\n".join(text for _, text in sorted(topics.items()))


def code() -> str:
    """Return source files of Python's library that the shipped model was not trained on."""
    return "\n\n".join(files("heldout").values())


def noise() -> str:
    """Return RULER's repeated sentences."""
    line = (
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
    )
    return f"{line}\n" * 20_000


HAYSTACKS: dict[str, Callable[[], str]] = {made.__name__: made for made in (prose, code, noise)}


def haystack(name: str | Path) -> str:
    """Return a text by its name, or that of a file.

    Raises:
        ValueError: there is no such file, or it is not text.
    """
    if str(name) in HAYSTACKS:
        return HAYSTACKS[str(name)]()
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"--text must be {', '.join(HAYSTACKS)}, or a file of UTF-8 text, got {name}: {error}"
        ) from error


def pieces(text: str) -> list[str]:
    """Return the lines of a text, with long lines cut at spaces."""
    found = []
    for line in text.splitlines(keepends=True):
        while len(line) > PIECE:
            cut = line.rfind(" ", 1, PIECE) + 1 or PIECE
            found.append(line[:cut])
            line = line[cut:]
        found.append(line)
    return found
