"""The puzzles of the docs: what they say, that they can be solved, and what marking them says."""

import json
import re
import subprocess
import sys
from doctest import DocTestParser, DocTestRunner
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction, signature

import pytest

import reference
from spec_tests.exercises import mark, mark_file
from spec_tests.implementation import Implementation, is_stub
from spec_tests.index import ROOT
from spec_tests.mutants import MUTANTS
from spec_tests.report.tex import as_text, tex_equations

FOLDER = ROOT / "docs/puzzles"
PAPERS = ("hubkv", "graphkv", "hex")


def module_of(name):
    """Import a module of the puzzles' folder, without a place on the search path."""
    spec = spec_from_file_location(f"puzzles_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


puzzles = module_of("puzzles")
SOLUTIONS = {
    name: paper
    for paper in PAPERS
    for name, value in vars(module_of(paper)).items()
    if name in puzzles.exercises and isfunction(value)
}
MISTAKES = {
    "hub_mask": (
        "scores = scores.masked_fill(protected, -torch.inf)",
        "pass",
        "protected_tokens_compete",
    ),
    "discount": (
        "torch.where(hubs, scores, gamma * scores)",
        "torch.where(hubs, gamma * scores, scores)",
        "a hub keeps its score",
    ),
    "selectivity": (
        ".std(correction=0)",
        ".std()",
        "sample_deviation",
    ),
    "head_weights": (
        "share.pow(tau).clamp(minimum, maximum)",
        "share.clamp(minimum, maximum).pow(tau)",
        "clipped_first",
    ),
    "gate": (
        "strength = ratio**power",
        "strength = ratio",
        "linear_gate",
    ),
    "retain": (
        "torch.as_tensor(budget)[..., None]",
        "torch.as_tensor(budget)[..., None] + first.sum(-1, keepdim=True)",
        "protected entries take their share of the budget",
    ),
    "cosine_matrix": (
        "torch.where(lengths > 0, (start * end).sum(-1) / lengths, 0).clamp(-1, 1)",
        "(start * end).sum(-1)",
        "inner_product",
    ),
    "neighbours": (
        ".scatter(-1, sources[..., None], False)",
        "",
        "own_neighbours",
    ),
    "decay": (
        "lowered = after * (1 - loss)",
        "lowered = before * (1 - loss)",
        "overwriting_product",
    ),
    "half_edge_pairing": (
        "generator.permutation(half_edges)",
        "generator.integers(0, channels, len(half_edges))",
        "the channels share the half edges evenly",
    ),
    "biadjacency": (
        "return mask.scatter(1, pairs, True)",
        "return mask.float().scatter(1, pairs, 1.0)",
        "Wrong type or shape",
    ),
    "is_ramanujan": (
        "sqrt(rows - 1) + sqrt(columns - 1)",
        "sqrt(rows) + sqrt(columns)",
        "roots_of_the_degrees",
    ),
    "attention_mass": (
        " / queries.shape[-1] ** 0.5",
        "",
        "unscaled_mass",
    ),
    "quantise": (
        "/ (2**bits - 1)\n",
        "/ 2**bits\n",
        "one_level_too_many",
    ),
    "pack_bits": (
        "<< p % 32",
        "<< 31 - p % 32",
        "highest_bit_first",
    ),
    "hex_append": (
        'if config.mode == "append" or len(cache.blocks) < config.period:',
        "if True:",
        "always_append",
    ),
}
"""A usual mistake in each solution: its text, the mistake, and its mutant or words of its card."""
RUN = """
import sys
from pathlib import Path
from spec_tests import exercises
from spec_tests.report.terminal import card_lines

def mark_all(module, names, *options):
    for name, card in exercises.cards_of_run(module, names, *options).items():
        lines = card_lines(exercises.least_failure(card)) if card["failures"] else ()
        print(name, exercises.state_of(card), *(line for line, _ in lines), "=====", sep="\\n")

every = "--every" in sys.argv
if every:  # a card for each exercise, and two failures are enough of each
    exercises.mark_module, exercises.ENOUGH = mark_all, 2
sys.exit(exercises.mark_file(Path("puzzles.py"), *sys.argv[1 + every:]))
"""


def filled(folder, mistakes=None):
    """Write the puzzles into a folder, with a solution of each, or a mistaken one."""
    text = (FOLDER / "puzzles.py").read_text()
    for name, paper in SOLUTIONS.items():
        solved = (FOLDER / f"{paper}.py").read_text()
        if mistakes:
            right, wrong, _ = mistakes[name]
            assert solved.count(right) == 1
            solved = solved.replace(right, wrong)
        (folder / f"solved_{name}.py").write_text(solved)
        text += f"from solved_{name} import {name}\n"
    (folder / "puzzles.py").write_text(text)


def run(*words, folder):
    """Run Python in a folder, and return its exit status and output."""
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_every_puzzle_is_a_stub_of_a_public_function_that_a_page_solves():
    assert set(puzzles.exercises) == set(SOLUTIONS) == set(MISTAKES)
    for name in puzzles.exercises:
        stub = getattr(puzzles, name)
        assert is_stub(stub)
        stated = signature(getattr(reference, name)).parameters.values()
        asked = signature(stub).parameters.values()
        assert [(p.name, p.kind, p.default) for p in asked] == [
            (p.name, p.kind, p.default) for p in stated
        ]


def test_every_puzzle_says_its_equation():
    for name in puzzles.exercises:
        (equation,) = map(as_text, tex_equations(name))
        assert f"\n\n    {equation}\n\n" in getattr(puzzles, name).__doc__


def test_the_examples_of_every_puzzle_are_those_of_its_solution():
    solved = {name: getattr(module_of(paper), name) for name, paper in SOLUTIONS.items()}
    for name in puzzles.exercises:
        place = {**vars(puzzles), **solved}
        test = DocTestParser().get_doctest(getattr(puzzles, name).__doc__, place, name, None, 0)
        assert sum(bool(example.want) for example in test.examples) >= 2
        assert not DocTestRunner().run(test).failed


def test_the_notebook_is_the_module_s(tmp_path):
    notebook = module_of("notebook")
    made = json.loads((FOLDER / "puzzles.ipynb").read_text())
    assert made == notebook.notebook(), "run python docs/puzzles/notebook.py"
    text = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n\n".join(text))
    status, said = run("cells.py", folder=tmp_path)
    assert status == 0
    assert re.findall(r" 1  (\w+)  not begun", said) == [*puzzles.exercises]


def test_a_notebook_marks_a_function(tmp_path):
    text = "from solved_gate import gate\nfrom spec_tests.exercises import mark\nmark(gate)\n"
    filled(tmp_path)
    (tmp_path / "cells.py").write_text(text)
    assert run("cells.py", folder=tmp_path) == (
        0,
        "marking gate …\n\n 1  gate  solved\n\n1 of 1 solved\n",
    )


@pytest.mark.parametrize("paper", PAPERS)
def test_the_file_of_a_paper_passes(paper):
    few = "--level", "edges", "--examples", "2"
    status, said = run("-m", "spec_tests", paper, *few, folder=FOLDER)
    assert status == 0, said


def test_every_puzzle_can_be_solved(tmp_path):
    filled(tmp_path)
    status, said = run("-c", RUN, "-k", "vector or share", folder=tmp_path)
    assert status == 0
    assert said.endswith("\n16 of 16 solved\n")


def test_a_usual_mistake_in_each_puzzle_is_named(tmp_path):
    filled(tmp_path, MISTAKES)
    few = ("--examples", "5", "-k", "not test_agrees and not convention")
    _, said = run("-c", RUN, "--every", *few, folder=tmp_path)
    cards = dict(card.strip().split("\n", 1) for card in said.split("=====\n") if card.strip())
    assert cards.keys() == MISTAKES.keys()
    for name, (_, _, hint) in MISTAKES.items():
        assert cards[name].startswith("wrong\n")
        words = MUTANTS[hint].fault if hint in MUTANTS else hint
        assert words in " ".join(cards[name].split()), cards[name]


def test_the_page_shows_the_first_puzzle_and_what_is_said_of_a_mistake(tmp_path):
    page, module = (FOLDER / "index.md").read_text(), (FOLDER / "puzzles.py").read_text()
    stub, tried = re.findall(r"```py\n(def hub_mask.*?)```", page, re.DOTALL)
    assert module.count(stub) == 1
    (tmp_path / "puzzles.py").write_text(module.replace(stub, tried))
    status, said = run("-m", "spec_tests", "puzzles", folder=tmp_path)
    assert status == 1
    assert f"```text\n{said}```" in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exercises = ('gate',)\ndef gate(:\n", "SyntaxError: invalid syntax"),
        ("exercises = ('gate',)\nimport reference\n1 / 0\n", "ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_imported_says_where(tmp_path, monkeypatch, capsys, text, said):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "unimportable.py").write_text(text)
    assert mark_file(tmp_path / "unimportable.py") == pytest.ExitCode.USAGE_ERROR
    shown = capsys.readouterr().out
    assert said in shown
    assert re.search(r'unimportable.py", line [23]', shown)
    assert "importlib" not in shown


def test_a_stub_counts_as_missing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "with_stubs.py").write_text(
        "def hub_mask(scores, radius=2, protected=None): ...\n"
        "def gate(scores, corrected, ratio, power=2.0):\n"
        "    'Later.'\n    raise NotImplementedError\n"
        "def discount(scores, hubs, gamma=0.5):\n    return None\n"
    )
    module = Implementation("with_stubs")
    assert module.offered == ["discount"]
    assert {"hub_mask", "gate"} <= module.lacks


def test_functions_of_a_notebook_need_names_of_the_specification():
    with pytest.raises(ValueError, match="got <lambda>"):
        mark(lambda scores: scores)
