"""The walks as Jupyter notebooks: their prose, pictures and examples, with the printed results."""

import base64
import re
from doctest import DocTestParser
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)
EXAMPLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)
PICTURE = re.compile(r"!\[(.*?)\]\((?:\.\./)?figures/(\w+\.svg)\)(?:\{[^}]*\})?", re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]+)\](?:\((?!attachment:)[^)]*\)|\[[\w.]+\])")
DOWNLOAD = re.compile(r"^\[.*\]\(walk\.ipynb\).*$", re.MULTILINE)
FOOTNOTE = re.compile(r"^\[\^\w+\]: .*\n?|\[\^\w+\]", re.MULTILINE)
HEADING_ID = re.compile(r"^(#+ .*?) \{[^}]*\}$", re.MULTILINE)
Cell = dict[str, Any]


def notebook(page: Path) -> dict[str, Any]:
    """Return a page of the docs as a notebook, in version 4.5 of the format."""
    text = DOWNLOAD.sub("", FRONT_MATTER.sub("", page.read_text()))
    place = page.relative_to(DOCS.parent).as_posix()
    needs = "It needs `pip install -c constraints.txt -e .` in a copy of the repository."
    cells = [prose(f"*Generated from `{place}`.* {needs}")]
    for number, part in enumerate(EXAMPLE.split(text)):
        cells += code(part) if number % 2 else [prose(part)]
    kept = [cell for cell in cells if cell["source"].strip()]
    for number, cell in enumerate(kept):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return dict(cells=kept, metadata=dict(kernelspec=kernel), nbformat=4, nbformat_minor=5)


def prose(text: str) -> Cell:
    """Return a cell of text, with its pictures in it and without the links of the site."""
    attached = {}

    def attach(found: re.Match[str]) -> str:
        """Attach a picture, and return where the cell shows it."""
        data = (DOCS / "figures" / found[2]).read_bytes()
        attached[found[2]] = {"image/svg+xml": base64.b64encode(data).decode()}
        return f"![{found[1]}](attachment:{found[2]})"

    text = PICTURE.sub(attach, COMMENT.sub("", FOOTNOTE.sub("", text)))
    text = HEADING_ID.sub(r"\1", LINK.sub(r"\1", text)).strip()
    cell = dict(cell_type="markdown", metadata={}, source=text)
    return cell | dict(attachments=attached) if attached else cell


def code(examples: str) -> list[Cell]:
    """Return a cell for each result that an example prints, and one for what follows the last."""
    cells, lines = [], ""
    for example in DocTestParser().get_examples(examples):
        lines += example.source
        if example.want:
            cells.append(code_cell(lines, example.want))
            lines = ""
    return cells + ([code_cell(lines, "")] if lines else [])


def code_cell(source: str, printed: str) -> Cell:
    """Return a cell of code with what its last expression prints."""
    if source.splitlines()[-1].startswith("print("):
        result = dict(output_type="stream", name="stdout", text=printed)
    else:
        data = {"text/plain": printed.removesuffix("\n")}
        result = dict(output_type="execute_result", execution_count=None, metadata={}, data=data)
    return dict(
        cell_type="code",
        execution_count=None,
        metadata={},
        outputs=[result] if printed else [],
        source=source.removesuffix("\n"),
    )
