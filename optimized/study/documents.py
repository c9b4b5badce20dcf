"""The documents that a model reads: stretches of a text with hidden tasks, or somebody's own."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import ceil, gcd
from random import Random
from typing import NamedTuple

from transformers import PreTrainedTokenizerBase

from optimized.study.forms import form_of
from optimized.study.haystacks import pieces
from optimized.study.tasks import Task, draw
from optimized.tiny.corpus_tokenizer import single_token_words

SAMPLE = 20_000
"""Characters of a text whose tokens are counted, to know how many documents it has room for."""
SEEDS = 32
"""Documents of one seed; more are those of the next seed."""


class Question(NamedTuple):
    """A question about a document."""

    kind: str
    asked: list[int]
    """What the model reads after the context."""
    answer: list[int]
    """The tokens that greedy decoding must give, where there is one right answer."""
    depth: float = 0.0
    """Position of what is asked for in the context, from 0 to 1."""
    answers: tuple[str, ...] = ()
    """All right answers, where generated text is compared with them by a metric of this kind."""


class Document(NamedTuple):
    """A context, its continuation, and questions about it."""

    context: list[int]
    continuation: list[int]
    size: int
    """Bytes of the continuation after its first token."""
    questions: tuple[Question, ...]
    lines: tuple[int, int] = (0, 0)
    """First and last piece of the text."""
    number: int = 0
    """Its number among the documents of its seed."""


class Maker:
    """A factory of documents from a text."""

    def __init__(self, text: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self.text, self.tokenizer, self.form = text, tokenizer, form_of(tokenizer)
        self.prefix: list[int] = self.ids(self.form.head)
        if self.form.name == "ours" and tokenizer("a").input_ids[0] == tokenizer.bos_token_id:
            self.prefix = [int(str(tokenizer.bos_token_id))]

    @cached_property
    def pieces(self) -> list[str]:
        """The lines of the text."""
        return pieces(self.text)

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

    def question(self, task: Task, depth: float) -> Question:
        """Return the question of a task; the answer is the tokens after the question's."""
        asked = self.form.asked(task.question, task.beginning)
        both = self.ids(asked + task.answer)
        # Some tokenizers join the space between the two to the answer.
        pairs = enumerate(zip([*self.ids(asked), None], both, strict=False))
        same = next(index for index, (before, after) in pairs if before != after)
        return Question(task.kind, both[:same], both[same:], depth)

    def document(
        self, rng: Random, start: int, context: int, continuation: int, kinds: Sequence[str]
    ) -> Document:
        """Return a stretch of the text with a statement at a random place of each equal part.

        Raises:
            ValueError: the text is too short for the context, or the context for the tasks.
        """
        tasks = draw(rng, kinds, self.words)
        owners = [index for index, task in enumerate(tasks) for _ in task.statements]
        if len(owners) > len(tasks):
            rng.shuffle(owners)
        waiting = [iter(task.statements) for task in tasks]
        stated = [self.ids(next(waiting[owner]) + "\n") for owner in owners]
        body = context - len(self.prefix) - sum(map(len, stated))
        if body < 8:
            raise ValueError(
                f"--context must leave room for {len(tasks)} tasks in its shortest documents, of "
                f"{context} tokens: use at least {2 * (context - body + 8)}, or fewer --needles"
            )
        taken, start = self.stretch(start, body + continuation)
        flat = [token for piece in taken for token in piece]
        found, depths, used = list(self.prefix), [0.0] * len(tasks), 0
        for index, (owner, line) in enumerate(zip(owners, stated, strict=True)):
            wanted = (index + rng.random()) / len(owners) * body
            end = max(used, nearest_end(taken, wanted, body))
            found += flat[used:end]
            depths[owner] = len(found) / context
            found, used = found + line, end
        found += flat[used:body]
        questions = tuple(map(self.question, tasks, depths))
        size = self.size(flat) - self.size(flat[: body + 1])
        return Document(found, flat[body:], size, questions, (start, start + len(taken)))

    def room(self, length: int) -> int:
        """Return about how many documents of a length the text has room for."""
        sample = self.text[:SAMPLE]
        rate = len(sample) / max(1, len(self.ids(sample)))
        return max(1, int(len(self.text) / (1.6 * rate * length)))

    def documents(
        self,
        seed: int,
        count: int,
        lengths: Sequence[int],
        continuation: int,
        needles: int,
        kinds: Sequence[str] = (),
    ) -> list[Document]:
        """Return documents from all parts of the text, shortest first.

        Each depends on the seed and its own number alone. The seeds use different parts of the
        text until it has no more; lengths and kinds alternate.
        """
        room, asked = self.room(max(lengths) + continuation), kinds or self.form.kinds
        step = next(step for step in range(int(0.618 * room), room + 2) if gcd(step, room) == 1)
        made, ends = [], [*accumulate(map(len, self.pieces))]
        for index in range(count):
            rng = Random(f"documents {seed} {index}")
            start = (SEEDS * seed + index) * step % room / room
            some = [asked[(index * needles + n) % len(asked)] for n in range(needles)]
            length = lengths[-1 - index % len(lengths)]
            first = bisect_left(ends, start * ends[-1])
            document = self.document(rng, first, length, continuation, some)
            made.append(document._replace(number=index))
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
