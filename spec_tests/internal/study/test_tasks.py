"""Tasks, the documents that they are hidden in, and the scores of answers."""

from random import Random

import pytest
import torch

pytest.importorskip("transformers")

from transformers import AutoTokenizer

from optimized.study import forms
from optimized.study.documents import Maker, have_overlap
from optimized.study.haystacks import HAYSTACKS, haystack
from optimized.study.own_data import DATASETS, METRICS, own_documents
from optimized.study.tasks import FACT, KINDS, draw
from optimized.tiny import WORDS

CHAT = "{% for m in messages %}<|begin|>{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


@pytest.fixture(scope="module")
def ours():
    return AutoTokenizer.from_pretrained(WORDS)


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of a model that is not ours: it has other special tokens."""
    made = AutoTokenizer.from_pretrained(WORDS)
    vocabulary = made.get_vocab()
    made.get_vocab = lambda: {name: n for name, n in vocabulary.items() if name != "<|begin|>"}
    return made


@pytest.mark.parametrize("kind", [*KINDS])
def test_the_answer_stands_in_the_text_and_not_in_the_question(kind):
    for seed in range(30):
        (task,) = draw(Random(seed), [kind])
        hidden, asked = " ".join(task.statements), task.question + task.beginning
        assert task.answer.strip(" )(:,") in hidden
        assert task.answer.strip() not in asked
        assert task.kind == kind


def test_questions_of_a_document_differ():
    for seed in range(30):
        tasks = draw(Random(seed), [*KINDS, *KINDS, FACT, FACT])
        assert len({task.question for task in tasks}) == len(tasks)


def test_every_statement_is_hidden_in_its_order_and_asked_for_in_the_models_form(tokenizer):
    tokenizer.chat_template = CHAT
    maker = Maker(haystack("prose"), tokenizer)
    assert maker.form.name == "chat"
    (made,) = maker.documents(3, 1, [900], 40, 3, ["conflict", "values", "repeated"])
    text = tokenizer.decode(made.context)
    assert len(made.context) == 900
    assert text.startswith(f"<|begin|>user: {forms.TASK}")
    rng = Random("documents 3 0")
    drawn = draw(rng, [q.kind for q in made.questions])
    for task, question in zip(drawn, made.questions, strict=True):
        places = [text.index(statement + "\n") for statement in task.statements]
        assert places == sorted(places)
        asked = tokenizer.decode(question.asked)
        assert asked == f"\n\n{task.question}\nassistant:{task.beginning}"
        assert tokenizer.decode(question.asked + question.answer) == asked + task.answer
        assert 0 < question.depth < 1


def test_without_a_template_the_question_is_plain_text(tokenizer, ours):
    tokenizer.chat_template = None
    form = forms.form_of(tokenizer)
    assert (form.name, form.asked("Who?", "It is")) == (
        "plain",
        "\n\nQuestion: Who?\nAnswer: It is",
    )
    assert forms.form_of(ours).asked(">>> key") == "\n>>> key\n"
    tokenizer.chat_template = CHAT
    request = tokenizer.decode(forms.request(tokenizer)(0, torch.tensor([5])))
    assert request == "\n\nRepeat the previous context exactly.\nassistant:"


def test_a_document_depends_on_its_seed_and_number_alone(ours):
    maker = Maker(haystack("code"), ours)
    few, many = (maker.documents(5, count, [256, 128], 16, 2) for count in (4, 9))
    by_number = {document.number: document for document in many}
    assert [by_number[document.number] for document in few] == few


@pytest.mark.parametrize("text", ["code", "prose"])
def test_documents_of_four_seeds_share_no_text(ours, text):
    maker = Maker(haystack(text), ours)
    made = [x for seed in range(4) for x in maker.documents(seed, 12, [512], 128, 2)]
    assert not have_overlap(made)


@pytest.mark.parametrize("name", [*HAYSTACKS])
def test_every_machine_has_texts_of_a_hundred_thousand_words(name):
    assert len(haystack(name).split()) > 50_000


@pytest.mark.parametrize(
    ("metric", "text", "answers", "score"),
    [
        ("exact", "The Paris.", ["paris"], 1),
        ("exact", "Paris, France", ["Paris", "London"], 0),
        ("contains", "It is 12 and 14.", ["12", "13"], 0.5),
        ("label", "sport\nnews", ["News", "Sport"], 1),
        ("label", "sport\nnews", ["News"], 0),
        ("f1", "red green blue", ["green red"], 0.8),
        ("rouge-l", "red green blue", ["green red"], 0.4),
        ("rouge-l", "a b c d", ["b c d e"], 2 * 3 / 7),  # "a" is an article
        ("edit", "```python\nx = 1\ny", ["x = 1"], 1),
        ("edit", "", ["x"], 0),
    ],
)
def test_scores_of_answers(metric, text, answers, score):
    assert METRICS[metric](text, answers) == pytest.approx(score)


def test_own_questions_about_one_context_are_asked_together(ours, tmp_path):
    (tmp_path / "own.jsonl").write_text(
        '{"context": "Tea is hot.", "question": "What?", "answers": "tea"}\n\n'
        '{"context": "Ice.", "input": "How?", "answers": ["cold"], "dataset": "hotpotqa"}\n'
        '{"context": "Tea is hot.", "question": "How?", "answers": ["hot"], "metric": "exact"}\n'
    )
    ice, tea = own_documents(tmp_path / "own.jsonl", Maker("", ours))
    assert [question.kind for question in tea.questions] == ["contains", "exact"]
    assert ice.questions[0].kind == DATASETS["hotpotqa"] == "f1"
    assert ice.questions[0].answers == ("cold",)
    assert ours.decode(tea.questions[1].asked) == "\nHow?\n"
