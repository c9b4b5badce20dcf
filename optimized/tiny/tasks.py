"""What the model practises: text, facts asked for later, and passages that come back.

A row is a list of pieces: some bytes and how much each of them counts in the loss. Answers count
more than text, since they are few and the rest of a fact is chance.
"""

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from optimized.tiny.corpus import Split, passage

Piece = tuple[bytes, float]

ANSWER = 4.0
FACTS = 0.3

REPEAT = b"\n\nRepeat the previous context exactly.\n\n"
CONTINUE = (
    b"\n\nRepeat the part of the previous context exactly, starting with `",
    b"`.\n\n",
)
"""The two requests of KVzip: from the start, and from a given place."""


class Fact(NamedTuple):
    """Something that nobody can know who has not read it."""

    key: str
    value: str

    def stated(self) -> bytes:
        """Return the fact as a line."""
        return f"{self.key} = {self.value}\n".encode()

    def question(self, restated: bool = False) -> bytes:
        """Return what has the value as its continuation: a question, or the fact's beginning."""
        return (f"{self.key} = " if restated else f">>> {self.key}\n").encode()

    def answer(self) -> bytes:
        """Return the value as it ends: with its line."""
        return f"{self.value}\n".encode()


def word(rng: Random, syllables: int) -> str:
    """Make up a word."""
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(syllables))


def facts(rng: Random, count: int) -> list[Fact]:
    """Make up facts, no two about the same thing."""
    found: dict[str, Fact] = {}
    while len(found) < count:
        key = word(rng, rng.choice((2, 3, 3)))
        value = f"{rng.randrange(100_000):05}" if rng.random() < 0.5 else word(rng, 3)
        found[key] = Fact(key, value)
    return list(found.values())


def asked(fact: Fact, rng: Random) -> list[Piece]:
    """Return a fact asked for, in one of the two ways, and the answer."""
    return [(fact.question(rng.random() < 0.5), FACTS), (fact.answer(), ANSWER)]


def dense(rng: Random, length: int) -> list[Piece]:
    """Many small documents: a few facts between lines of text, each then asked for twice."""
    pieces: list[Piece] = []
    most = min(10, 2 + length // 100)
    while sum(len(text) for text, _ in pieces) < length:
        known = facts(rng, rng.randint(2, most))
        for fact in known:
            if rng.random() < 0.4:
                line = passage(rng, rng.randint(10, 40 + length // 10)).rpartition(b"\n")[0]
                pieces.append((line + b"\n", 1.0))
            pieces.append((fact.stated(), FACTS))
        for _ in range(2):
            for fact in rng.sample(known, len(known)):
                pieces += asked(fact, rng)
        pieces.append((b"\n", 1.0))
    return pieces


def hidden(rng: Random, known: list[Fact], length: int, split: Split = "train") -> list[Piece]:
    """Return `length` bytes of a split with facts between its lines, at random depths."""
    text = passage(rng, length - sum(len(fact.stated()) for fact in known), split)
    breaks = [0, *(place + 1 for place, byte in enumerate(text) if byte == ord("\n"))]
    places = sorted(rng.choice(breaks) for _ in known)
    first, *ends = [*places, len(text)]
    pieces: list[Piece] = [(text[:first], 1.0)]
    for fact, start, end in zip(known, places, ends, strict=True):
        pieces += [(fact.stated(), FACTS), (text[start:end], 1.0)]
    return pieces


def needles(rng: Random, length: int) -> list[Piece]:
    """Facts hidden in a long text, and asked for at its end."""
    known = facts(rng, rng.randint(1, 1 + length // 200))
    pieces = hidden(rng, known, length - 60 * len(known))
    pieces.append((b"\n", 1.0))
    for fact in rng.sample(known, len(known)):
        pieces += asked(fact, rng)
    return pieces


def haystack(rng: Random, length: int) -> list[Piece]:
    """Many facts hidden in a long text, each asked for once, from its start to its end."""
    known = facts(rng, length // 80)
    pieces = hidden(rng, known, length - 20 * len(known))
    pieces.append((b"\n", 1.0))
    for fact in rng.sample(known, len(known)):
        pieces += asked(fact, rng)
    return pieces


def repeat(rng: Random, length: int) -> list[Piece]:
    """A context, a request to repeat it, and as much of it as there is room for."""
    size = rng.randint(length // 4, length * 3 // 4)
    if rng.random() < 0.3:
        words = (word(rng, rng.randint(1, 4)).encode() for _ in range(size // 3 + 1))
        context = b" ".join(words)[:size]
        pieces = [(context, FACTS)]
    else:
        pieces = hidden(rng, facts(rng, rng.randint(0, 1 + size // 300)), size)
        context = b"".join(text for text, _ in pieces)
    if rng.random() < 0.5:
        return [*pieces, (REPEAT, 1.0), (context, 1.0)]
    start = rng.randrange(size // 2)
    before, after = CONTINUE
    first = context[start : start + 8]
    return [*pieces, (before + first + after, 1.0), (context[start:], 1.0)]


def copy(rng: Random, length: int) -> list[Piece]:
    """Text in which earlier lines come back, unannounced."""
    text = b""
    while len(text) < length:
        text += passage(rng, rng.randint(40, length // 3))
        size = rng.randint(30, length // 6)
        start = rng.randrange(max(1, len(text) - size))
        text += text[start : start + size]
    return [(text, 1.0)]


def plain(rng: Random, length: int) -> list[Piece]:
    """Text as it is."""
    return [(passage(rng, length), 1.0)]


def words(rng: Random, length: int) -> list[Piece]:
    """Some made-up words, and the same again, and other ones."""
    pieces: list[Piece] = []
    for _ in range(1 + length // 100):
        made = (word(rng, rng.randint(1, 4)).encode() for _ in range(rng.randint(4, length // 30)))
        line = b" ".join(made) + b"\n"
        pieces += [(line, FACTS), (line, 1.0)]
    return pieces


Shares = dict[Callable[[Random, int], list[Piece]], int]

COPYING: Shares = {dense: 5, words: 2, repeat: 1, copy: 1}
MIXED: Shares = {dense: 3, plain: 3, needles: 1, repeat: 1, copy: 1}
FINDING: Shares = {haystack: 3, plain: 2, dense: 1, needles: 1, repeat: 1, copy: 1}
"""How many rows of nine are of which kind: until copying has been learnt, then among other text,
and at last over long distances."""


def row(rng: Random, length: int, shares: Shares) -> list[Piece]:
    """Return a row of about `length` bytes of a kind drawn by its share."""
    (kind,) = rng.choices(list(shares), list(shares.values()))
    return kind(rng, length)
