"""The training tasks: plain text, facts with later questions, and repeated passages.

A row is a list of pieces: tokens, and the weight of each in the loss. Answers weigh more than text
because they are few, and the statement of a fact weighs less because it is random.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from typing import NamedTuple

from optimized.tiny.corpus import Split
from optimized.tiny.corpus_tokenizer import TokenizedCorpus

Piece = tuple[Sequence[int], float]

ANSWER = 4.0
FACTS = 0.3

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

    def question(self, restated: bool = False) -> str:
        """Return a text that the value continues: a question, or the beginning of the fact."""
        return f"{self.key} = " if restated else f">>> {self.key}\n"

    def answer(self) -> str:
        """Return the value and the end of its line."""
        return f"{self.value}\n"


def word(rng: Random, syllables: int) -> str:
    """Return a random word of `syllables` syllables."""
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(syllables))


def line_of_words(rng: Random, count: int) -> str:
    """Return `count` random words of one to four syllables."""
    return " ".join(word(rng, rng.randint(1, 4)) for _ in range(count))


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


def questions(corpus: TokenizedCorpus, rng: Random, fact_list: list[Fact]) -> list[Piece]:
    """Return a question about each fact, in one of two forms, and its answer."""
    pieces: list[Piece] = []
    for fact in fact_list:
        pieces.append((corpus.ids(fact.question(rng.random() < 0.5)), FACTS))
        pieces.append((corpus.ids(fact.answer()), ANSWER))
    return pieces


def dense(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return many small documents: a few facts between lines of text, and two questions on each."""
    pieces: list[Piece] = []
    most = min(10, 2 + length // 100)
    while sum(len(text) for text, _ in pieces) < length:
        fact_list = facts(rng, rng.randint(2, most), corpus.words)
        for fact in fact_list:
            if rng.random() < 0.4:
                text = corpus.passage(rng, rng.randint(10, 40 + length // 10))
                ends = [i for i, token in enumerate(text, 1) if token in corpus.breaks]
                pieces.append((text[: ends[-1]] if ends else corpus.ids("\n"), 1.0))
            pieces.append((corpus.ids(fact.stated()), FACTS))
        for _ in range(2):
            pieces += questions(corpus, rng, rng.sample(fact_list, len(fact_list)))
        pieces.append((corpus.ids("\n"), 1.0))
    return pieces


def recall(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return very small documents: only a few facts, and three questions on each."""
    pieces: list[Piece] = []
    while sum(len(text) for text, _ in pieces) < length:
        fact_list = facts(rng, rng.randint(2, 6), corpus.words)
        pieces += [(corpus.ids(fact.stated()), FACTS) for fact in fact_list]
        pieces += questions(corpus, rng, rng.sample(fact_list * 3, 3 * len(fact_list)))
        pieces.append((corpus.ids("\n"), 1.0))
    return pieces


def cycle(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return a list of names, repeated in the same order."""
    line = [corpus.ids(name(rng, corpus.words) + "\n") for _ in range(rng.randint(4, 20))]
    size = sum(map(len, line))
    return [(text, FACTS) for text in line] + [(text, 1.0) for text in line] * (length // size)


def hidden(
    corpus: TokenizedCorpus, rng: Random, fact_list: list[Fact], length: int, split: Split = "train"
) -> list[Piece]:
    """Return `length` tokens of a split with facts between its lines, at random positions."""
    lines = [corpus.ids(fact.stated()) for fact in fact_list]
    text = corpus.passage(rng, length - sum(map(len, lines)), split)
    breaks = [0, *(i for i, token in enumerate(text, 1) if token in corpus.breaks)]
    cuts = [*sorted(rng.choice(breaks) for _ in fact_list), len(text)]
    pieces: list[Piece] = [(text[: cuts[0]], 1.0)]
    for line, (start, end) in zip(lines, pairwise(cuts), strict=True):
        pieces += [(line, FACTS), (text[start:end], 1.0)]
    return pieces


def found_facts(
    corpus: TokenizedCorpus, rng: Random, length: int, count: int, room: int
) -> list[Piece]:
    """Return facts hidden in a long text, with a question on each at its end."""
    fact_list = facts(rng, count, corpus.words)
    pieces = [*hidden(corpus, rng, fact_list, length - room * count), (corpus.ids("\n"), 1.0)]
    return pieces + questions(corpus, rng, rng.sample(fact_list, count))


def needles(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return a few facts hidden in a long text, with questions at its end."""
    return found_facts(corpus, rng, length, rng.randint(1, 1 + length // 200), 60)


def haystack(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return many facts hidden in a long text, with one question on each at its end."""
    return found_facts(corpus, rng, length, length // 80, 20)


def repeat(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return a context, a request to repeat it, and the repeated context."""
    size = rng.randint(length // 4, length * 3 // 4)
    if rng.random() < 0.3:
        context = corpus.ids(line_of_words(rng, size // 3 + 1))[:size]
        pieces: list[Piece] = [(context, FACTS)]
    else:
        pieces = hidden(
            corpus, rng, facts(rng, rng.randint(0, 1 + size // 300), corpus.words), size
        )
        context = [token for text, _ in pieces for token in text]
    if rng.random() < 0.5:
        return [*pieces, (corpus.ids(REPEAT), 1.0), (context, 1.0)]
    start = rng.randrange(size // 2)
    before, after = CONTINUE
    request = [*corpus.ids(before), *context[start : start + 8], *corpus.ids(after)]
    return [*pieces, (request, 1.0), (context[start:], 1.0)]


def copy(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return text in which earlier passages are repeated without a request."""
    text: list[int] = []
    while len(text) < length:
        text += corpus.passage(rng, rng.randint(40, length // 3))
        size = rng.randint(30, length // 6)
        start = rng.randrange(max(1, len(text) - size))
        text += text[start : start + size]
    return [(text, 1.0)]


def plain(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return plain text."""
    return [(corpus.passage(rng, length), 1.0)]


def words(corpus: TokenizedCorpus, rng: Random, length: int) -> list[Piece]:
    """Return lines of random words, each line twice."""
    pieces: list[Piece] = []
    for _ in range(1 + length // 100):
        line = corpus.ids(line_of_words(rng, rng.randint(4, length // 30)) + "\n")
        pieces += [(line, FACTS), (line, 1.0)]
    return pieces


Shares = dict[Callable[[TokenizedCorpus, Random, int], list[Piece]], int]

STARTING: Shares = {recall: 5, cycle: 4, plain: 1}
COPYING: Shares = {dense: 5, words: 2, repeat: 1, copy: 1}
MIXED: Shares = {dense: 3, plain: 3, needles: 1, repeat: 1, copy: 1}
FINDING: Shares = {haystack: 3, plain: 2, dense: 1, needles: 1, repeat: 1, copy: 1}
"""Relative shares of the tasks in each phase of training: learning to look up tokens, learning to
copy, copying among other text, and finding facts over long distances."""


def draw_task_row(corpus: TokenizedCorpus, rng: Random, length: int, shares: Shares) -> list[Piece]:
    """Return a row of about `length` tokens of a task that is drawn by its share."""
    (kind,) = rng.choices(list(shares), list(shares.values()))
    return kind(corpus, rng, length)
