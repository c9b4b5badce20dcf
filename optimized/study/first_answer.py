"""The beginning of a run: one hidden fact, asked for with the full cache and with smaller ones."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from optimized.study.compared_systems import systems_named
from optimized.study.documents import Document, Maker, nearest_end
from optimized.study.evaluate import Batch
from optimized.study.measurements import MeasurementSettings, Row, trials
from optimized.study.tasks import FACT, Task
from optimized.tiny.corpus import files


def fact(key: str, value: str) -> Task:
    """Return a fact in the form of our small models."""
    return Task((f"{key} = {value}",), f">>> {key}", "", f"{value}\n", FACT)


WORDS = fact("zip_token", "turtle_month")
"""The hidden fact, of words that most tokenizers have whole."""
SYLLABLES = fact("zipoka", "turime")
"""The hidden fact for tokenizers without whole words."""
SENTENCE = Task(
    ('The secret word of Paris is "turtle".',),
    "What is the secret word of Paris?",
    'The secret word of Paris is "',
    "turtle",
    "word",
)
"""The hidden fact for models that know sentences."""
FILE = "timeit.py"
"""The file that is read by default, one that the shipped model was not trained on."""
TOKENS = 800
LEAST = 32
"""The fewest tokens beside the fact."""
SHARE = 0.9
"""Share of the entries that the systems that evict remove."""
SYSTEMS = {
    "full": "full cache",
    "kvzip+hubkv": "KVzip + HubKV, a tenth kept",
    "snapkv": "SnapKV, a tenth kept",
    "hex-4": "HEX-4, codes of 4 bits",
}
"""The systems that are asked, by name, with the words that the reader sees."""
LONGEST = 24
"""The most tokens of an answer."""


class Answer(NamedTuple):
    """What a model answers over a cache, and the bytes of that cache."""

    system: str
    text: str
    nbytes: int
    refused: str | None


def default_text() -> str:
    """Return the text that is read if none is given."""
    return files("heldout")[FILE]


def task_for(maker: Maker) -> Task:
    """Return the task that a model is given."""
    if maker.form.name != "ours":
        return SENTENCE
    return WORDS if maker.words else SYLLABLES


def document(maker: Maker, tokens: int) -> Document:
    """Return the beginning of a text with a fact at the line end nearest to its middle.

    Raises:
        ValueError: the text is too short, or the number of tokens too small.
    """
    task = task_for(maker)
    line = maker.ids(f"{task.statements[0]}\n")
    body = tokens - len(maker.prefix) - len(line)
    if body < LEAST:
        raise ValueError(f"it takes {tokens - body + LEAST} tokens to hide a fact, got {tokens}")
    taken, first = maker.stretch(0, body + 2)
    flat = [token for piece in taken for token in piece]
    middle = nearest_end(taken, body / 2, body + 2)
    context = [*maker.prefix, *flat[:middle], *line, *flat[middle:body]]
    question = maker.question(task, middle / body)
    return Document(context, flat[body:], 1, (question,), (first, first + len(taken)))


def answers(
    model: PreTrainedModel, tokenizer: Any, read: Document, settings: MeasurementSettings
) -> list[Answer]:
    """Return the answers of every system, each over its own cache of the same document."""
    rows = [Row(trial) for trial in trials(systems_named(list(SYSTEMS)), [SHARE])]
    found = []
    with torch.inference_mode():
        trials_of = [row.trial for row in rows]
        batch = Batch(model, [read], trials_of, settings._replace(other=None), tokenizer)
        for row in rows:
            name, text = row.trial.system.name, ""
            try:
                with batch.cache.undone():
                    batch.compress(row)
                    text = batch.judge.greedy(read.questions[0].asked, ended, LONGEST)
                    text = text.partition("\n")[0].partition('"')[0].strip()
            except ValueError as refusal:
                row.refused = " ".join(str(refusal).split())
            found.append(Answer(name, text, row.nbytes, row.refused))
    return found


def ended(text: str) -> bool:
    """Whether an answer is complete: at the end of its line, or of the quoted word."""
    return "\n" in text or '"' in text


def lines(model: str, text: str, tokens: int, task: Task, found: Sequence[Answer]) -> Iterator[str]:
    """Yield the answers as prose.

    Args:
        model: the name of the model.
        text: the name of the text.
        tokens: length of the document.
        task: what is hidden in it.
        found: the answers, that of the full cache first.
    """
    yield (
        "A language model keeps the keys and values of all tokens it has read: its KV cache.\n"
        "What does it still know when the cache is made smaller?\n"
    )
    yield (
        f"The model {model!r} read {tokens} tokens of {text} with one line hidden in the middle:\n"
        f"\n    {task.statements[0]}\n"
    )
    yield (
        "Its cache was compressed, and only then was it asked for the value, by the line "
        f"`{task.question}`.\nIt answers:\n"
    )
    names, texts = list(SYSTEMS.values()), [shown(one) for one in found]
    wide, broad = max(map(len, names)), max(map(len, texts))
    for name, text, one in zip(names, texts, found, strict=True):
        size = "" if one.refused else f"{one.nbytes:>13,} bytes"
        yield f"    {name:<{wide}}   {text:<{broad}} {size}".rstrip()
    yield ""
    if task.answer.strip() not in found[0].text:
        yield (
            "The full cache does not give the value either. The shipped model is trained to "
            "answer such a line;\nanother model may know the value and not answer it.\n"
        )


def shown(one: Answer) -> str:
    """Return an answer as it is printed."""
    return f"refused: {one.refused}" if one.refused else one.text or "(nothing)"
