"""The documents that a model reads: stretches of a text with hidden facts."""

from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil
from pathlib import Path
from random import Random
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from optimized.tiny.corpus import files
from optimized.tiny.corpus_tokenizer import single_token_words
from optimized.tiny.tasks import Fact, facts

PIECE = 160
"""Longer lines are cut at spaces, so that a fact can be inserted nearly anywhere."""


class Question(NamedTuple):
    """A question about a hidden fact."""

    asked: list[int]
    answer: list[int]
    depth: float
    """Position of the fact in the context, from 0 to 1."""


class Document(NamedTuple):
    """A context, its continuation, and questions about it."""

    context: list[int]
    continuation: list[int]
    size: int
    """Bytes of the continuation after its first token."""
    questions: tuple[Question, ...]
    lines: tuple[int, int]
    """First and last piece of the text."""


def held_out() -> str:
    """Return text that the shipped models were not trained on, from Python's standard library."""
    return "\n\n".join(files("heldout").values())


def load_text_file(file: Path) -> str:
    """Return the text of a file.

    Raises:
        ValueError: there is no such file, or it is not text.
    """
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--text must be a file of UTF-8 text, got {file}: {error}") from error


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


class Maker:
    """A factory of documents from a text."""

    def __init__(self, text: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self.pieces, self.tokenizer = pieces(text), tokenizer
        marked = tokenizer("a").input_ids[:1]
        self.prefix: list[int] = marked if marked == [tokenizer.bos_token_id] else []

    @cached_property
    def words(self) -> list[str]:
        """The words that facts are made of: those that the tokenizer has whole."""
        return single_token_words(self.tokenizer)

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens around it."""
        return self.tokenizer(text, add_special_tokens=False).input_ids

    def size(self, tokens: list[int]) -> int:
        """Return the number of bytes of some tokens; a token of an incomplete character is one."""
        whole = len(tokens)
        while (text := str(self.tokenizer.decode(tokens[:whole]))).endswith("\ufffd"):
            whole -= 1
        return len(text.encode()) + len(tokens) - whole

    def following(self, start: int) -> Iterator[list[int]]:
        """Yield the tokens of each piece, from the piece `start` on."""
        for piece in self.pieces[start:]:
            yield self.ids(piece)

    def stretch(self, start: int, length: int) -> tuple[list[list[int]], int]:
        """Return pieces of `length` tokens in total, and the index of the first one.

        The first piece is `start`, or an earlier one where the text ends too soon.
        """
        while True:
            taken, count = [], 0
            for piece in self.following(start):
                taken.append(piece[: length - count])
                count += len(taken[-1])
                if count == length:
                    return taken, start
            if start == 0:
                raise ValueError(
                    f"the text must have at least {length} tokens for this context and what "
                    f"comes after it, got {count}"
                )
            start //= 2

    def question(self, fact: Fact, depth: float) -> Question:
        """Return the question about a fact; the answer is the tokens after the question's."""
        question = "\n" + fact.question()
        both = self.ids(question + fact.answer())
        # Some tokenizers join the space between the two to the answer.
        pairs = enumerate(zip([*self.ids(question), None], both, strict=False))
        same = next(place for place, (one, other) in pairs if one != other)
        return Question(both[:same], both[same:], depth)

    def document(
        self, rng: Random, start: int, context: int, continuation: int, needles: int
    ) -> Document:
        """Return a stretch of the text with one fact at a random place of each equal part.

        Raises:
            ValueError: the text is too short for the context, or the context for the facts.
        """
        known = facts(rng, min(needles, context), self.words)  # more have no room
        stated = [self.ids(fact.stated()) for fact in known]
        body = context - len(self.prefix) - sum(map(len, stated)) * needles // max(1, len(known))
        if body < 8:
            raise ValueError(
                f"--context must leave room for {needles} facts in its shortest documents, of "
                f"{context} tokens: use at least {2 * (context - body + 8)}, or fewer --needles"
            )
        taken, start = self.stretch(start, body + continuation)
        flat = [token for piece in taken for token in piece]
        found, questions, at = list(self.prefix), [], 0
        for index, (fact, line) in enumerate(zip(known, stated, strict=True)):
            wanted = (index + rng.random()) / needles * body
            place = max(at, nearest_end(taken, wanted, body))
            found += flat[at:place]
            questions.append(self.question(fact, len(found) / context))
            found, at = found + line, place
        found += flat[at:body]
        after = flat[body:]
        size = self.size(flat) - self.size(flat[: body + 1])
        return Document(found, after, size, tuple(questions), (start, start + len(taken)))

    def documents(
        self, seed: int, count: int, lengths: list[int], continuation: int, needles: int
    ) -> list[Document]:
        """Return documents from all parts of the text, shortest first; a seed determines them.

        Lengths alternate, and the last length always occurs.
        """
        made = []
        for index in range(count):
            rng = Random(f"documents {seed} {index}")
            start = int((index + rng.random()) / count * len(self.pieces))
            length = lengths[(index - count) % len(lengths)]
            made.append(self.document(rng, start, length, continuation, needles))
        return sorted(made, key=lambda document: len(document.context))


def nearest_end(taken: list[list[int]], wanted: float, most: int) -> int:
    """Return the end of a piece, in tokens, that is nearest to a place and at most `most`."""
    ends = accumulate(map(len, taken), initial=0)
    return min((end for end in ends if end <= most), key=lambda end: abs(end - wanted))


def have_overlap(documents: list[Document]) -> bool:
    """Return whether two documents share some text, which makes verdicts overconfident."""
    spans = sorted(document.lines for document in documents)
    return any(second[0] < first[1] for first, second in pairwise(spans))


def lengths(context: int) -> list[int]:
    """Return the three lengths of documents: a half, three quarters and all of the context."""
    return [ceil(context / 2), ceil(context * 3 / 4), context]
