"""Somebody's own contexts and questions, from a file of JSON lines, and how answers are scored."""

import json
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rapidfuzz.distance import LCSseq
from rapidfuzz.fuzz import ratio

from optimized.study.documents import Document, Maker, Question

Metric = Callable[[str, Sequence[str]], float]


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without articles and punctuation."""
    plain = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def best(score: Callable[[str, str], float]) -> Metric:
    """Return a metric that takes the right answer with the best score."""
    return lambda text, answers: max(score(text, answer) for answer in answers)


def harmonic(common: int, said: Sequence[str], right: Sequence[str]) -> float:
    """Return the F1 score of `common` words among those said and those of the answer."""
    return 2 * common / max(1, len(said) + len(right))


def f1(text: str, answer: str) -> float:
    """Return the F1 score of the words, whatever their order."""
    said, right = words(text), words(answer)
    return harmonic((Counter(said) & Counter(right)).total(), said, right)


def rouge_l(text: str, answer: str) -> float:
    """Return ROUGE-L: the F1 score of the longest common subsequence of words."""
    said, right = words(text), words(answer)
    return harmonic(LCSseq.similarity(said, right), said, right)


def edit(text: str, answer: str) -> float:
    """Return the similarity of the first line of code to the answer, by edits of characters."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(("```", "#"))]
    return ratio(lines[0] if lines else "", answer) / 100


METRICS: dict[str, Metric] = {
    "exact": best(lambda text, answer: float(words(text) == words(answer))),
    "contains": lambda text, answers: (
        sum(x.lower() in text.lower() for x in answers) / len(answers)
    ),
    "label": best(lambda text, answer: float(answer.lower() in text.partition("\n")[0].lower())),
    "f1": best(f1),
    "rouge-l": best(rouge_l),
    "edit": best(edit),
}
"""The metrics by name: scores of a text against all right answers, from 0 to 1."""

F1 = "narrativeqa qasper multifieldqa_en hotpotqa 2wikimqa musique triviaqa"
DATASETS = {
    **dict.fromkeys(F1.split(), "f1"),
    **dict.fromkeys(["gov_report", "qmsum", "multi_news", "samsum"], "rouge-l"),
    **dict.fromkeys(["trec", "lsht"], "label"),
    **dict.fromkeys(["passage_count", "passage_retrieval_en"], "contains"),
    **dict.fromkeys(["lcc", "repobench-p"], "edit"),
}
"""The metric of each dataset of LongBench in English and in code."""


def own_documents(file: Path, maker: Maker) -> list[Document]:
    """Return a document for each context of a file, with all questions about it.

    Raises:
        ValueError: the file cannot be read, or a line is not as documented.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--tasks must be a file of JSON lines, got {file}: {error}") from error
    asked: dict[str, list[Question]] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            context, question = own_question(f"--tasks {file} line {number}", line, maker)
            asked.setdefault(context, []).append(question)
    if not asked:
        raise ValueError(f"--tasks must have a line at least, got {file} without one")
    made = [
        Document([*maker.prefix, *maker.ids(context)], [], 0, tuple(questions), number=number)
        for number, (context, questions) in enumerate(asked.items())
    ]
    return sorted(made, key=lambda document: len(document.context))


def own_question(where: str, line: str, maker: Maker) -> tuple[str, Question]:
    """Return the context and the question of a line."""
    try:
        row: dict[str, Any] = json.loads(line)
        context, answers = row["context"], row["answers"]
        question = row["question"] if "question" in row else row["input"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{where} must be an object with context, question (or input) and answers: {error!r}"
        ) from error
    answers = [answers] if isinstance(answers, str) else answers
    metric = row.get("metric") or DATASETS.get(row.get("dataset", ""), "contains")
    texts = isinstance(answers, list) and all(isinstance(x, str) and x for x in answers)
    if not (texts and answers and isinstance(context, str) and isinstance(question, str)):
        raise ValueError(f"{where} must have texts as context and question, and a list of answers")
    if metric not in METRICS:
        raise ValueError(f"{where} must have a metric among {', '.join(METRICS)}, got {metric!r}")
    ids = maker.ids(maker.form.asked(question, row.get("beginning", "")))
    return context, Question(metric, ids, [], answers=tuple(answers))
