"""The puzzles of the docs: what they say, that they can be solved, and what marking them prints."""

import json
import re
import shutil
import subprocess
import sys
from doctest import DocTestParser, DocTestRunner
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction, signature

import pytest

import reference
from spec_tests.exercises import mark_file
from spec_tests.implementation import Implementation, is_stub
from spec_tests.index import ROOT
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


def run(*words, folder):
    """Run Python in a folder, and return its exit status and output."""
    command = [sys.executable, *words]
    done = subprocess.run(
        command, cwd=folder, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_every_puzzle_is_a_stub_of_a_public_function_and_its_examples_are_those_of_a_solution():
    assert set(puzzles.exercises) == set(SOLUTIONS)
    solved = {name: getattr(module_of(paper), name) for name, paper in SOLUTIONS.items()}
    for name in puzzles.exercises:
        stub = getattr(puzzles, name)
        assert is_stub(stub)
        specified, written = (
            [(p.name, p.default) for p in signature(function).parameters.values()]
            for function in (getattr(reference, name), stub)
        )
        assert specified == written
        (equation,) = map(as_text, tex_equations(name))
        assert f"\n\n    {equation}\n\n" in stub.__doc__
        names = {**vars(puzzles), **solved}
        test = DocTestParser().get_doctest(stub.__doc__, names, name, None, 0)
        assert sum(bool(example.want) for example in test.examples) >= 2
        assert not DocTestRunner().run(test).failed


def test_the_notebook_is_the_module_s(tmp_path):
    notebook = module_of("notebook")
    made = json.loads((FOLDER / "puzzles.ipynb").read_text())
    assert made == notebook.notebook(), "run python docs/puzzles/notebook.py"
    text = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    shutil.copy(FOLDER / "hubkv.py", tmp_path / "solved.py")
    solved = "from solved import gate\nmark(gate)\n"
    (tmp_path / "cells.py").write_text("\n\n".join([*text, solved]))
    status, output = run("cells.py", folder=tmp_path)
    assert status == 0
    assert re.findall(r" 1  (\w+)  not begun", output) == [*puzzles.exercises]
    assert output.endswith("marking gate …\n\n 1  gate  solved\n\n1 of 1 solved\n")


@pytest.mark.parametrize("paper", PAPERS)
def test_the_file_of_a_paper_passes(paper):
    few = "--level", "edges", "--examples", "2"
    status, output = run("-m", "spec_tests", paper, *few, folder=FOLDER)
    assert status == 0, output


def test_the_page_shows_the_first_puzzle_and_what_is_said_of_a_mistake(tmp_path):
    page, module = (FOLDER / "index.md").read_text(), (FOLDER / "puzzles.py").read_text()
    stub, tried = re.findall(r"```py\n(def hub_mask.*?)```", page, re.DOTALL)
    assert module.count(stub) == 1
    (tmp_path / "puzzles.py").write_text(module.replace(stub, tried))
    status, output = run("-m", "spec_tests", "puzzles", folder=tmp_path)
    assert status == 1
    assert f"```text\n{output}```" in page


def test_a_file_that_cannot_be_imported_says_where(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "unimportable.py").write_text("exercises = ('gate',)\ndef gate(:\n")
    assert mark_file(tmp_path / "unimportable.py") == pytest.ExitCode.USAGE_ERROR
    shown = capsys.readouterr().out
    assert "SyntaxError: invalid syntax" in shown
    assert 'unimportable.py", line 2' in shown
    assert "importlib" not in shown


def test_a_stub_counts_as_missing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "with_stubs.py").write_text(
        "def hub_mask(scores, radius=2, protected=None): ...\n"
        "def gate(scores, corrected, ratio, power=2.0):\n    raise NotImplementedError\n"
        "def discount(scores, hubs, gamma=0.5):\n    return None\n"
    )
    assert Implementation("with_stubs").offered == ["discount"]
