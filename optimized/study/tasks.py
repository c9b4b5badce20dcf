"""Tasks: something hidden in a text, a question about it, and the answer.

They follow RULER and the benchmarks of the papers. A document holds tasks of different kinds, since
several of one kind confuse a small model. Every answer is one that greedy decoding can be compared
with, token by token.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from optimized.tiny.tasks import facts

# ruff: noqa: SIM905, lists of words are read more easily as text
NAMES = (
    "Alice Bruno Carla Dennis Elena Felix Grace Hugo Irene Jonas Karin Louis Maria Nina Oscar "
    "Paula Quentin Rosa Simon Tanja Ulrich Vera Walter Yara"
).split()
CITIES = (
    "Athens Berlin Boston Cairo Chicago Dallas Delhi Dublin Geneva Havana Lima Lisbon London "
    "Madrid Milan Moscow Oslo Paris Prague Rome Seattle Sydney Tokyo Vienna"
).split()
JOBS = (
    "baker butcher carpenter chemist dentist doctor driver farmer gardener lawyer librarian "
    "mechanic nurse painter pilot plumber poet sailor soldier tailor teacher writer"
).split()
WORDS = (
    "anchor apple arrow basket blanket bottle bridge bucket butter button candle carpet castle "
    "cheese coffee copper cotton diamond dragon feather flower forest garden guitar hammer harbor "
    "island jacket kitchen ladder lemon mirror mountain needle ocean orange paper pepper pillow "
    "planet pocket rabbit river rocket saddle shadow silver spider summer table thunder ticket "
    "tiger tower tunnel turtle valley velvet violin wagon whistle window winter zebra"
).split()
CATEGORIES = {
    "animal": "cat dog horse cow sheep goat lion wolf bear fox".split(),
    "colour": "red green blue yellow black white pink brown purple grey".split(),
    "fruit": "apple banana cherry grape lemon mango melon peach pear plum".split(),
}


class Task(NamedTuple):
    """Something that is hidden in a text, and a question about it."""

    statements: tuple[str, ...]
    """What is hidden, in this order, each at a place of its own."""
    question: str
    beginning: str
    """The beginning of the answer, which the model is given."""
    answer: str
    """What follows the beginning."""
    kind: str = ""
    """Its name among `KINDS`, or `fact`; `draw` sets it."""


def digits(rng: Random, count: int) -> str:
    """Return a number of `count` digits."""
    return str(rng.randrange(10 ** (count - 1), 10**count))


def number(rng: Random) -> Task:
    """A magic number, in the words of RULER's needles."""
    key, value = rng.choice(WORDS), digits(rng, 7)
    return Task(
        (f"One of the special magic numbers for {key} is: {value}.",),
        f"What is the special magic number for {key} mentioned in the provided text?",
        f"The special magic number for {key} mentioned in the provided text is: ",
        value,
    )


def values(rng: Random) -> Task:
    """Two magic numbers of one key, both asked for in one answer."""
    key, first, second = rng.choice(WORDS), digits(rng, 4), digits(rng, 4)
    said = "One of the special lucky numbers for {} is: {}."
    return Task(
        (said.format(key, first), said.format(key, second)),
        f"What are the two special lucky numbers for {key} mentioned in the provided text, in the "
        "order of the text?",
        f"One of the special lucky numbers for {key} is: {first}. One of the special lucky numbers "
        f"for {key} is: ",
        second,
    )


def word(rng: Random) -> Task:
    """A secret word."""
    key, value = rng.choice(CITIES), rng.choice(WORDS)
    return Task(
        (f'The secret word of {key} is "{value}".',),
        f"What is the secret word of {key}?",
        f'The secret word of {key} is "',
        value,
    )


def pair(rng: Random) -> Task:
    """A password of two words."""
    user, value = rng.choice(NAMES), "-".join(rng.sample(WORDS, 2))
    return Task(
        (f'The password of user {user} is "{value}".',),
        f"What is the password of user {user}?",
        f'The password of user {user} is "',
        value,
    )


def place(rng: Random) -> Task:
    """The city of a person."""
    name, city = rng.choice(NAMES), rng.choice(CITIES)
    return Task(
        (f"{name} lives in the city of {city}.",),
        f"In which city does {name} live?",
        f"{name} lives in the city of",
        f" {city}",
    )


def work(rng: Random) -> Task:
    """One fact of several parts: the work and the city of a person."""
    name, job, city = rng.choice(NAMES), rng.choice(JOBS), rng.choice(CITIES)
    return Task(
        (f"{name} works as a {job} and has an office in {city}.",),
        f"What is the work of {name}, and where is the office?",
        f"{name} works as a",
        f" {job} and has an office in {city}",
    )


def conflict(rng: Random) -> Task:
    """Two statements of which the later one corrects the earlier."""
    key, (old, new) = rng.choice(CITIES), rng.sample(WORDS, 2)
    return Task(
        (
            f"The symbol of the team from {key} is the {old}.",
            f"Correction: the symbol of the team from {key} is now the {new}.",
        ),
        f"What is the symbol of the team from {key} now?",
        f"The symbol of the team from {key} is now the",
        f" {new}",
    )


def repeated(rng: Random) -> Task:
    """One fact, stated three times in other words."""
    name, value = rng.choice(NAMES), rng.choice(WORDS)
    return Task(
        (
            f"The favourite thing of {name} is the {value}.",
            f"Nothing pleases {name} more than a {value}.",
            f"Whoever asks {name} what to bring is told: a {value}.",
        ),
        f"What is the favourite thing of {name}?",
        f"The favourite thing of {name} is the",
        f" {value}",
    )


def variables(rng: Random) -> Task:
    """A value that is handed on from variable to variable."""
    first, second, third = rng.sample([f"{a}{b}" for a in "XYZ" for b in range(1, 10)], 3)
    value = digits(rng, 5)
    return Task(
        (f"VAR {first} = {value}.", f"VAR {second} = VAR {first}.", f"VAR {third} = VAR {second}."),
        f"What is the value of the variable {third}?",
        f"The value of the variable {third} is: ",
        value,
    )


def lookup(rng: Random) -> Task:
    """One entry of a dictionary."""
    keys = rng.sample(WORDS, 8)
    entries = {key: digits(rng, 4) for key in keys}
    key = rng.choice(keys)
    listed = "; ".join(f"the code of {name} is: {value}" for name, value in entries.items())
    return Task(
        (f"In the table of codes, {listed}.",),
        f"What is the code of {key} in the table of codes?",
        f"In the table of codes, the code of {key} is: ",
        entries[key],
    )


def frequent(rng: Random) -> Task:
    """The word that a list has most often."""
    key, (common, *others) = rng.choice(CITIES), rng.sample(WORDS, 7)
    listed = [common] * 6 + others
    rng.shuffle(listed)
    return Task(
        (f"The list of coded words from {key} is: {' '.join(listed)}.",),
        f"Which word occurs most often in the list of coded words from {key}?",
        f'The word that occurs most often in the list of coded words from {key} is "',
        common,
    )


def labels(rng: Random) -> Task:
    """A label for a new example, after many examples."""
    names = dict(zip(CATEGORIES, rng.sample(("alpha", "beta", "gamma", "delta"), 3), strict=True))
    drawn = [(x, kind) for kind, members in CATEGORIES.items() for x in rng.sample(members, 6)]
    asked, kind = drawn.pop(rng.randrange(len(drawn)))
    rng.shuffle(drawn)
    shots = "; ".join(f"{x} has label {names[of]}" for x, of in drawn)
    return Task(
        (f"Labels of examples: {shots}.",),
        f"By the labels of examples, which label has {asked}?",
        f"{asked} has label",
        f" {names[kind]}",
    )


def code(rng: Random) -> Task:
    """The parameters of a function."""
    name, *parameters = rng.sample(WORDS, 4)
    listed = ", ".join(parameters)
    return Task(
        (f"def use_{name}({listed}):\n    return combine({listed})\n",),
        f"Repeat the definition of the Python function `use_{name}`.",
        f"```python\ndef use_{name}({parameters[0]}",
        f", {parameters[1]}, {parameters[2]}):",
    )


def fact(rng: Random, words: Sequence[str]) -> Task:
    """A fact in the form that our small models are trained on."""
    (made,) = facts(rng, 1, words)
    return Task((made.stated().rstrip(),), f">>> {made.key}", "", made.answer())


FACT = "fact"
KINDS: dict[str, Callable[[Random], Task]] = {
    made.__name__: made
    for made in (
        number, values, word, pair, place, work, conflict, repeated, variables, lookup, frequent,
        labels, code,
    )
}  # fmt: skip
"""The kinds of tasks by name, besides `fact`."""
FOUND = ("number", "word", "pair", "place", "work", "values", "conflict", "repeated", "code")
"""The kinds that a model of 135 M parameters solves over its full cache."""


def draw(rng: Random, kinds: Sequence[str], words: Sequence[str] = ()) -> list[Task]:
    """Return a task of each kind, all with different questions."""
    made: dict[str, Task] = {}
    for kind in kinds:
        task = None
        while task is None or task.question in made:
            task = fact(rng, words) if kind == FACT else KINDS[kind](rng)
        made[task.question] = task._replace(kind=kind)
    return [*made.values()]
