"""Facts that a model can only know from its context, and the requests of KVzip."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

REPEAT = "\n\nRepeat the previous context exactly.\n\n"
CONTINUE = (
    "\n\nRepeat the part of the previous context exactly, starting with `",
    "`.\n\n",
)
"""The two requests of KVzip: to repeat from the start, and from a given place."""


class Fact(NamedTuple):
    """A random key and value, which a model can only know from its context."""

    key: str
    value: str

    def stated(self) -> str:
        """Return the fact as a line."""
        return f"{self.key} = {self.value}\n"

    def question(self) -> str:
        """Return the question that the value continues."""
        return f">>> {self.key}\n"

    def answer(self) -> str:
        """Return the value and the end of its line."""
        return f"{self.value}\n"


def word(rng: Random, syllables: int) -> str:
    """Return a random word of `syllables` syllables."""
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(syllables))


def name(rng: Random, words: Sequence[str]) -> str:
    """Return a name of random words: one, one with a digit, or two."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(words)
    if kind < 0.75:
        return f"{rng.choice(words)}{rng.randrange(10)}"
    return f"{rng.choice(words)}_{rng.choice(words)}"


def facts(rng: Random, count: int, words: Sequence[str] = ()) -> list[Fact]:
    """Return random facts with different keys, made of `words`, or of syllables without them."""
    found: dict[str, Fact] = {}
    while len(found) < count:
        if words:
            key, value = name(rng, words), name(rng, words)
        else:
            key = word(rng, rng.choice((2, 3, 3)))
            value = f"{rng.randrange(100_000):05}" if rng.random() < 0.5 else word(rng, 3)
        found[key] = Fact(key, value)
    return list(found.values())
