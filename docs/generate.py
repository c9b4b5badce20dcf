"""Write the parts of the docs that come from code: `python docs/generate.py`, then `mkdocs serve`.

Committed, so that pages can be read where the repository is: figures in docs/figures/, a notebook
beside each walk, and the parts of pages from `<!-- made NAME -->` (a figure or a table), `<!--
function NAME -->` (a formula) or `<!-- file NAME -->` (a file below docs/) to `<!-- end -->`. For
the site alone, and ignored by git: docs/generated/ and docs/laws/. `--check` fails if a
committed file was not up to date.
"""

import ast
import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from inspect import getdoc, unwrap
from pathlib import Path

import figures
import notebooks
from drawing import write

from spec_tests import index

DOCS = Path(__file__).parent
ERRATA = DOCS / "errata"
PAPERS = {"hubkv": "HubKV", "graphkv": "GraphKV", "hex": "HEX", "conventions": "All three"}
WEIGHTS = {
    "numbers": (
        "Changes numbers or selections",
        "Whoever reads the paper otherwise here computes other numbers, or keeps other entries.",
    ),
    "convention": (
        "A choice to be made",
        "The paper leaves something open that has to be settled, and matters less.",
    ),
    "print": ("Slips in print", "Text and tables that no code follows from."),
}
PART = re.compile(r"<!-- (made|function|file) (\S+) -->\n.*?<!-- end -->", re.DOTALL)
MARK = "As printed|In words|Corrected|From elsewhere|Ours"
"""Whether the formula of a docstring stands in the paper: the first words behind its ids."""
UNSEARCHED = ["---", "search:", "  exclude: true", "---"]
HEADING = re.compile(r'^### (?P<title>.+) <a id="(?P<id>E-[A-Z]\d+)" class="(?P<weight>\w+)"></a>$')
# A sentence ends at a full stop that does not belong to an abbreviation or a number.
SENTENCE = re.compile(r".*?(?<!\b[A-Z])(?<!Eq)(?<!Fig)(?<!Tab)(?<!App)(?<!\bvs)[.?!](?=\s|$)")


def main() -> None:
    """Write every generated file, without leaving older ones."""
    for folder in (DOCS / "generated", DOCS / "laws"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    before = {file: file.read_bytes() for file in committed()}
    made = figures.main() | {"errata": errata(), "equations": plain_equations()}
    for stem in PAPERS:
        made[f"errata_{stem}"] = errata_that_change_numbers(ERRATA / f"{stem}.md")
    for page in DOCS.rglob("*.md"):
        write(page, with_parts(page, made))
    for name, text in pages():
        file = DOCS / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    changed = [file for file in committed() if before.get(file) != file.read_bytes()]
    for file in changed:
        print(f"changed: {file.relative_to(DOCS.parent)}")
    if changed and "--check" in sys.argv:
        sys.exit("these are committed: run `python docs/generate.py`, and commit what it writes")


def committed() -> list[Path]:
    """Return the files below docs/ that this program writes and git holds."""
    kinds = ("figures/*.svg", "*/walk.ipynb", "*.md", "*/*.md")
    return [file for kind in kinds for file in DOCS.glob(kind)]


def with_parts(page: Path, made: dict[str, str]) -> str:
    """Return a page with its figures, tables and functions between their comments."""
    up = "../" * (len(page.relative_to(DOCS).parts) - 1)

    def part(found: re.Match[str]) -> str:
        kind, name = found[1], found[2]
        if kind == "file":
            text = file_or_block(DOCS / name)
        else:
            text = card(name, up) if kind == "function" else made[name]
        text = text.replace("](figures/", f"]({up}figures/").strip()
        return f"<!-- {kind} {name} -->\n\n{text}\n\n<!-- end -->"

    return PART.sub(part, page.read_text())


def file_or_block(file: Path) -> str:
    """Return a table as it is, and code as a block under the name of its file."""
    text = file.read_text().rstrip()
    if text.startswith("|"):
        return text
    return f'```{file.suffix[1:]} title="{file.name}"\n{text}\n```'


def card(name: str, up: str) -> str:
    """Return a function's summary, formula and source, for readers of the plain page."""
    module, _, short = name.rpartition(".")
    shown = unwrap(getattr(import_module(module), short))
    text = getdoc(shown) or ""
    said = re.split(r"\n\n[A-Z]\w+:\n", text)[0]
    source = re.search(r"^Source:\n((?: .*\n?)+)", text, re.MULTILINE)
    where = f"{up}../{shown.__module__.replace('.', '/')}.py"
    lines = [f"## `{short}`", "", said, "", f"Code: [{where.strip('./')}]({where})."]
    if source:
        cited = re.sub(rf"\. ({MARK})\b", r". **\1**", " ".join(source[1].split()))
        lines[-1] += f" Source: {cited}"
    return with_fenced_formulas("\n".join(lines))


def with_fenced_formulas(text: str) -> str:
    r"""Return Markdown with displayed formulas in fences: in `$$` a host reads `\{` as `{`."""
    return re.sub(r"^\$\$(.*?)\$\$$", r"```math\n\1\n```", text, flags=re.DOTALL | re.MULTILINE)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path below docs/ and the text of each generated file."""
    for name, text in figures.of_the_model().items():
        yield f"generated/{name}.txt", text
    yield "generated/equations.txt", index.page()
    for path in sorted(index.HERE.rglob("test_*.py")):
        if index.spec_marked_tests(path):
            yield index.law_page_path(str(path.relative_to(index.HERE))), laws(path)
    for path in [*DOCS.parent.glob("reference/**/*.py"), DOCS.parent / "optimized/distributed.py"]:
        name = path.relative_to(DOCS.parent)
        text = [*UNSEARCHED, f"# {name} {{ #{name} }}", "", *code(path.read_text().splitlines())]
        yield f"generated/{name}.md", "\n".join(text) + "\n"
    for walk in sorted(DOCS.glob("*/walk.md")):
        notebook = notebooks.notebook(walk)
        yield f"{walk.parent.name}/walk.ipynb", json.dumps(notebook, indent=1) + "\n"


def laws(path: Path) -> str:
    """Return the page of a file of laws: each law with its ids and source, then the other code."""
    marks: dict[str, list[str]] = {}
    for spec, law in index.spec_marked_tests(path):
        marks.setdefault(law, []).append(spec)
    place = path.relative_to(index.HERE)
    top = "/".join([".."] * len(place.parts))
    rest = path.read_text().splitlines()
    lines = [*UNSEARCHED, f"# Laws in {place}"]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name in marks:
            first = min(part.lineno for part in [node, *node.decorator_list]) - 1
            ids = [f"[{i}]({top}/equations.md#{i})" for i in dict.fromkeys(marks[node.name])]
            claim = index.law_as_sentence(node.name)
            heading = f"## {claim[0].upper()}{claim[1:]} {{ #{node.name} }}"
            lines += ["", heading, "", ", ".join(ids), "", *code(rest[first : node.end_lineno])]
            rest[first : node.end_lineno] = [""] * (node.end_lineno - first)
    left = re.sub(r"\n{4,}", "\n\n\n", "\n".join(rest)).strip()
    return "\n".join([*lines, "", "## The rest of the file", "", *code(left.splitlines())]) + "\n"


def code(lines: list[str]) -> list[str]:
    """Return lines of Python as a fenced code block."""
    return ["````python", *lines, "````"]


def errata() -> str:
    """Return the list of the errata by their weight for an implementer."""
    found: dict[str, dict[str, list[str]]] = {weight: {} for weight in WEIGHTS}
    for stem in PAPERS:
        for weight, line in entries(ERRATA / f"{stem}.md"):
            found[weight].setdefault(stem, []).append(line)
    lines = []
    for weight, (title, meaning) in WEIGHTS.items():
        lines += ["", f'## {title} <a id="{weight}"></a>', "", meaning]
        for stem, told in found[weight].items():
            lines += ["", f'### {PAPERS[stem]} <a id="{weight}-{stem}"></a>', ""]
            lines += ["<div data-search-exclude markdown>", "", *told, "", "</div>"]
    return "\n".join(lines) + "\n"


def plain_equations() -> str:
    """Return the list of equations for a repository host: links lead to code, and no laws."""
    text = re.sub(
        r"^(#+ .+) \{ #(\S+) \}$", r'\1 <a id="\2"></a>', index.page(), flags=re.MULTILINE
    )
    text = re.sub(r"\n*<div markdown>.*</div>\n", "\n", text)
    paths = re.compile(r"\]\[([\w.]+)\.\w+\]")
    text = paths.sub(lambda found: f"](../{found[1].replace('.', '/')}.py)", text)
    return with_fenced_formulas(text)


def entries(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the weight of each erratum of a file, and its line on the page."""
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        if heading := HEADING.match(line):
            text = "\n".join(lines[number + 1 :]).strip().partition("\n\n")[0].replace("\n", " ")
            first = SENTENCE.match(text)
            said = (first[0] if first else text).replace("](#", f"]({file.name}#")
            link = f"[{heading['title']}]({file.name}#{heading['id']})"
            yield heading["weight"], f"- {link}: {said}"


def errata_that_change_numbers(file: Path) -> str:
    """Return links to the errata of a file after which other numbers are computed."""
    titles = (HEADING.match(line) for line in file.read_text().splitlines())
    found = [
        f"[{one['title']}](#{one['id']})" for one in titles if one and one["weight"] == "numbers"
    ]
    return "\n".join(f"- {link}" for link in found) + "\n"


if __name__ == "__main__":
    main()
