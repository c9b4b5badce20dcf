"""The puzzles of the docs: what they say, that they can be solved, and what marking them prints."""

import json
import re
import shutil
from doctest import DocTestParser, DocTestRunner
from inspect import isfunction, signature
from runpy import run_path

import pytest

import reference
from spec_tests.implementation import is_stub
from spec_tests.index import ROOT
from spec_tests.internal.project.run_python import run_python
from spec_tests.report.tex import as_text, tex_equations

FOLDER = ROOT / "docs/puzzles"
PAPERS = ("hubkv", "graphkv", "hex")


def names_of(module: str) -> dict:
    """Return the names of a module of the puzzles' folder."""
    return run_path(str(FOLDER / f"{module}.py"))


PUZZLES = names_of("puzzles")
SOLUTIONS = {
    name: value
    for paper in PAPERS
    for name, value in names_of(paper).items()
    if name in PUZZLES["exercises"] and isfunction(value)
}


def test_every_puzzle_is_a_stub_of_a_public_function_and_its_examples_are_those_of_a_solution():
    assert set(PUZZLES["exercises"]) == set(SOLUTIONS)
    for name in PUZZLES["exercises"]:
        stub = PUZZLES[name]
        assert is_stub(stub)
        specified, written = (
            [(p.name, p.default) for p in signature(function).parameters.values()]
            for function in (getattr(reference, name), stub)
        )
        assert specified == written
        (equation,) = map(as_text, tex_equations(name))
        assert f"\n\n    {equation}\n\n" in stub.__doc__
        test = DocTestParser().get_doctest(stub.__doc__, PUZZLES | SOLUTIONS, name, None, 0)
        assert sum(bool(example.want) for example in test.examples) >= 2
        assert not DocTestRunner().run(test).failed


def test_every_puzzle_names_its_section_of_a_walk_and_has_two_hints():
    _, *hints = (FOLDER / "hints.md").read_text().split("\n## ")
    for name, said in zip(PUZZLES["exercises"], hints, strict=True):
        (section,) = re.findall(r"^ +Walk: docs(/.+)$", PUZZLES[name].__doc__, re.MULTILINE)
        assert said.startswith(f"{name}\n\n[The walk](..{section})\n")
        assert said.count("<summary>") == 2


def test_the_notebook_is_the_module_s(tmp_path):
    made = json.loads((FOLDER / "puzzles.ipynb").read_text())
    assert made == names_of("notebook")["notebook"](), "run python docs/puzzles/notebook.py"
    text = ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]
    shutil.copy(FOLDER / "hubkv.py", tmp_path / "solved.py")
    solved = "from solved import gate\nmark(gate)\n"
    (tmp_path / "cells.py").write_text("\n\n".join([*text, solved]))
    done = run_python("cells.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.findall(r" 1  (\w+)  not begun", done.stdout) == [*PUZZLES["exercises"]]
    assert done.stdout.endswith("marking gate …\n\n 1  gate  solved\n\n1 of 1 solved\n")


@pytest.mark.parametrize("paper", PAPERS)
def test_the_file_of_a_paper_passes(paper):
    few = "--level", "edges", "--examples", "2"
    done = run_python("-m", "spec_tests", paper, *few, folder=FOLDER)
    assert done.returncode == 0, done.stdout


def test_the_page_shows_the_first_puzzle_and_what_is_said_of_a_mistake(tmp_path):
    page, module = (FOLDER / "index.md").read_text(), (FOLDER / "puzzles.py").read_text()
    stub, tried = re.findall(r"```py\n(def hub_mask.*?)```", page, re.DOTALL)
    assert module.count(stub) == 1
    (tmp_path / "puzzles.py").write_text(module.replace(stub, tried))
    done = run_python("-m", "spec_tests", "puzzles", folder=tmp_path)
    assert done.returncode == 1
    assert f"```text\n{done.stdout}```" in page
