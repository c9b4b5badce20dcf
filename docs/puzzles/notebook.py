"""Write the notebook of the puzzles from their module: `python docs/puzzles/notebook.py`."""

import ast
import json
import re
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

from spec_tests.report.tex import as_text, tex_equations

HINTS = Path(__file__).with_name("hints.md")
MODULE = Path(__file__).with_name("puzzles.py")
NOTEBOOK = MODULE.with_suffix(".ipynb")
START = """# Sixteen puzzles

Write HubKV, GraphKV and HEX, function by function. Replace `raise NotImplementedError` by your code
and run the cell: `mark` runs the conformance suite on the function, which takes some seconds.

The last axis is the tokens, and any number of axes may stand before it: heads, layers, a batch.
Return new tensors, and leave the arguments as they are.
"""


def cells() -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each cell."""
    text = MODULE.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    yield "markdown", START
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    first = "\n".join(lines[imports[0].lineno - 1 : imports[-1].end_lineno])
    yield "code", f"{first}\n\nfrom spec_tests.exercises import mark"
    stubs = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    for number, node in enumerate(stubs, 1):
        above = lines[: node.lineno - 1]
        comment = next((line for line in above[-3:] if line.startswith("# ")), "")
        if comment:
            yield "markdown", f"#{comment}"
        yield "markdown", f"### {number} · `{node.name}`\n\n{as_markdown(node)}"
        head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno - 1])
        yield "code", f"{head}\n    raise NotImplementedError\n\n\nmark({node.name})"


def as_markdown(node: ast.FunctionDef) -> str:
    """Return a docstring with its equation in TeX, its examples in a block, and the hints."""
    said = re.sub(r"\nWalk: .*", "", cleandoc(ast.get_docstring(node) or ""))
    _, _, hints = HINTS.read_text().partition(f"\n## {node.name}\n\n")
    hints, _, _ = hints.partition("\n## ")
    for tex in tex_equations(node.name):
        said = said.replace(as_text(tex), f"$${tex}$$")
    words, prompt, examples = said.partition("\n>>> ")
    words = re.sub("\n{3,}", "\n\n", words)
    return f"{words}\n```pycon{prompt}{examples}\n```\n\n{hints}"


def notebook() -> dict[str, Any]:
    """Return the notebook as data."""
    made = []
    for number, (kind, text) in enumerate(cells()):
        cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        cell["source"] = text.splitlines(keepends=True)
        made.append(cell | ({"execution_count": None, "outputs": []} if kind == "code" else {}))
    python = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": made,
        "metadata": {"kernelspec": python, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


if __name__ == "__main__":
    NOTEBOOK.write_text(json.dumps(notebook(), ensure_ascii=False, indent=1) + "\n")
