"""Each walk's notebook runs from its first cell to its last, and prints what it shows."""

import ast
from contextlib import redirect_stdout
from doctest import NORMALIZE_WHITESPACE, OutputChecker
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from docs.notebooks import notebook

WALKS = sorted(Path(__file__).parent.glob("*/walk.md"))


def run(source: str, names: dict[str, Any]) -> str:
    """Run a cell, and return what it prints, and its last line if that is an expression."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(StringIO()) as printed:
        exec(compile(tree, "cell", "exec"), names)
        value = eval(ast.unparse(last), names) if last else None
    return printed.getvalue() + ("" if value is None else f"{value!r}\n")


@pytest.mark.parametrize("walk", WALKS, ids=lambda path: path.parent.name)
def test_each_cell_prints_what_the_notebook_shows(walk: Path) -> None:
    cells = notebook(walk)["cells"]
    names: dict[str, Any] = {}
    shown = 0
    for cell in cells:
        if cell["cell_type"] == "code":
            got = run(cell["source"], names)
            for output in cell["outputs"]:
                want = output["text"] if "text" in output else output["data"]["text/plain"] + "\n"
                assert OutputChecker().check_output(want, got, NORMALIZE_WHITESPACE), cell["source"]
                shown += 1
    assert shown > 5


@pytest.mark.parametrize("walk", WALKS, ids=lambda path: path.parent.name)
def test_a_notebook_has_the_prose_and_no_link_that_leads_nowhere(walk: Path) -> None:
    cells = notebook(walk)["cells"]
    text = "\n".join(one["source"] for one in cells if one["cell_type"] == "markdown")
    headings = [line for line in walk.read_text().splitlines() if line.startswith("#")]
    assert headings == [line for line in text.splitlines() if line.startswith("#")]
    assert not [mark for mark in (".md)", "][", "--8<--", ">>>", "{ ") if mark in text]
