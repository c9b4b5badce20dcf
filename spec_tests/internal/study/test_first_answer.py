"""The answers to one question that the command begins with, and its progress."""

import pytest

pytest.importorskip("transformers")

from optimized.study import first_answer, progress
from optimized.study.documents import Maker
from optimized.tiny import WORDS
from optimized.tiny.corpus_tokenizer import TokenizedCorpus
from spec_tests.internal.study.command_runner import TEXT, CommandRunner, save_random_model

STATED = first_answer.WORDS.statements[0] + "\n"


def test_the_run_begins_with_the_answers_of_four_caches(command, capsys):
    command.figures("--answer", "--systems", "snapkv")
    said = capsys.readouterr().out
    before, table, _ = said.partition("bits/byte")
    assert table
    assert said.startswith("A language model keeps the keys and values")
    assert first_answer.SYLLABLES.statements[0] in before  # its tokens are bytes
    assert f"128 tokens of {command.model / 'text.txt'}" in before
    lines = [line for line in before.splitlines() if line.endswith(" bytes")]
    sizes = [int(line.split()[-2].replace(",", "")) for line in lines]
    full, hubkv, snapkv, hexed = sizes
    assert full == 2 * 128 * 2 * 2 * 64 * 2  # keys and values of 2 layers and 2 heads in 16 bits
    assert max(hubkv, snapkv) < 0.12 * full
    assert hubkv < hexed < full
    assert "another model may know the value and not answer it" in before  # its weights are random


def test_a_system_that_the_model_does_not_take_is_refused_in_its_line(tmp_path, capsys):
    command = CommandRunner(save_random_model(tmp_path / "model", head_dim=16), tmp_path)
    command.figures("--answer", "--systems", "full")
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.strip().startswith("HEX-4")]
    assert "refused: density" in line


def test_a_run_too_short_for_a_question_goes_on_without_it(command, capsys):
    figures = command.figures("--answer", "--context", "40", "--needles", "0", "--systems", "full")
    said = capsys.readouterr()
    assert len(figures["rows"]) == 1
    assert said.out.split()[0] == "ratio"
    (line,) = said.err.splitlines()
    assert "no question first: it takes " in line
    assert line.endswith(" tokens to hide a fact, got 40")


def test_the_fact_is_a_line_of_its_own_in_the_middle():
    on = TokenizedCorpus(WORDS)
    made = first_answer.document(Maker(TEXT, on.tokenizer), 200)
    assert len(made.context) == 200
    text = on.tokenizer.decode(made.context)
    assert text.count("\n" + STATED) == 1
    assert 0.4 < made.questions[0].depth < 0.6
    assert on.tokenizer.decode(made.questions[0].answer) == first_answer.WORDS.answer


@pytest.mark.parametrize(("quiet", "count"), [(False, 2), (True, 0)])
def test_elsewhere_there_is_a_line_now_and_then(monkeypatch, capsys, quiet, count):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    with progress.Progress([1.0, 2.0, 1.0], quiet) as shown:
        for name in ("full", "snapkv", "gear"):
            shown.step(name)
    assert capsys.readouterr().err.count("\n") == count  # none at the end, when the table comes
