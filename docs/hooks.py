"""Pages that are generated when the site is built: equations, laws, errata by weight."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from spec_tests import index

ERRATA = Path(__file__).parent / "errata"
PAPERS = {"hex": "HEX", "hubkv": "HubKV", "graphkv": "GraphKV", "conventions": "All three"}
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
PAGE = re.compile(r"[\w/]+\.md")
UNSEARCHED = ["---", "search:", "  exclude: true", "---"]
HEADING = re.compile(r"^### (?P<title>.+) \{ #(?P<id>E-[A-Z]\d+) \.(?P<weight>\w+) \}$")
# A sentence ends at a full stop that does not belong to an abbreviation or a number.
SENTENCE = re.compile(r".*?(?<!\b[A-Z])(?<!Eq)(?<!Fig)(?<!Tab)(?<!App)(?<!\bvs)[.?!](?=\s|$)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Return the configuration with `folder/*` in the navigation replaced by the other pages."""
    config.nav = with_other_pages(config.nav or [], set(PAGE.findall(str(config.nav))))
    return config


def with_other_pages(nav: list[Any], named: set[str]) -> list[Any]:
    """Return a navigation in which `folder/*` stands for the folder's pages not in `named`."""
    found: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            inner = {k: with_other_pages(v, named) for k, v in entry.items() if isinstance(v, list)}
            found.append(entry | inner)
        elif entry.endswith("/*"):
            files = (ERRATA.parent / entry[:-2]).glob("*.md")
            found += sorted({f"{entry[:-1]}{file.name}" for file in files} - named)
        else:
            found.append(entry)
    return found


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Return the files of the site with the generated pages added."""
    for name, text in pages():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with code excluded from the search index, which every page loads."""
    return re.sub(r'(<div class="[\w -]*highlight")(?=><pre>)', r"\1 data-search-exclude", html)


def on_post_page(output: str, **_: Any) -> str:
    """Return the page with an accessible name for the theme's search dialog."""
    return output.replace('role="dialog">', 'role="dialog" aria-label="Search">')


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each generated page."""
    yield "equations.md", index.page()
    yield "errata/index.md", errata()
    for path in sorted(index.HERE.rglob("test_*.py")):
        if index.spec_marked_tests(path):
            yield index.law_page_path(str(path.relative_to(index.HERE))), laws(path)


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
    """Return the page that lists the errata by their weight for an implementer."""
    found: dict[str, dict[str, list[str]]] = {weight: {} for weight in WEIGHTS}
    for stem in PAPERS:
        for weight, line in entries(ERRATA / f"{stem}.md"):
            found[weight].setdefault(stem, []).append(line)
    lines = [
        "---",
        "search:",
        "  boost: 5",
        "---",
        "# Errata by weight",
        "",
        "Where the papers are wrong, silent or ambiguous, a line for each, by how much it matters",
        "to whoever writes the code. Each links to its page, which has what we decide and a",
        "counterexample that runs.",
    ]
    for weight, (title, meaning) in WEIGHTS.items():
        lines += ["", f"## {title} {{ #{weight} }}", "", meaning]
        for stem, told in found[weight].items():
            lines += ["", f"### {PAPERS[stem]} {{ #{weight}-{stem} }}", ""]
            lines += ["<div data-search-exclude markdown>", "", *told, "", "</div>"]
    return "\n".join(lines) + "\n"


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
