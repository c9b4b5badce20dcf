"""Pages lead where they say, on a repository host that knows Markdown alone.

What a build of the site adds to a page is not there.
"""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent
MADE = {page for folder in ("generated", "laws") for page in DOCS.glob(f"{folder}/**/*")}
PAGES = [DOCS.parent / "README.md", *sorted({*DOCS.rglob("*.md")} - MADE)]
UNREAD = re.compile(r"^(`{3,}).*?^\1|<!--.*?-->", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"`[^`\n]*`|(\$\$?)([^$]+)\1")
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)#?([^)\s]*)\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS.parent)))
def test_a_plain_page_has_no_dead_link_and_nothing_of_the_site(page):
    text = UNREAD.sub("", page.read_text())
    assert not re.search(r"^(--8<--|:::)|\]\[\w+(\.\w+)+\]", text, re.MULTILINE)
    formulas = [found[2] or "" for found in FORMULA.finditer(text)]
    assert not [one for one in formulas if re.search(r"\\[^a-zA-Z\s]", one)], (
        "hosts read `\\{` as `{`"
    )
    for path, anchor in LINK.findall(text):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{path}#{anchor}"


def anchors(page):
    """Return the anchors that a host gives a page's headings, and those in its HTML."""
    text = UNREAD.sub("", page.read_text())
    headings = re.findall(r"^#+ (.+)$", re.sub(r"<[^>]+>|\]\([^)]*\)", "", text), re.MULTILINE)
    slugs = [re.sub(r"[^\w\- ]", "", one.lower()).strip().replace(" ", "-") for one in headings]
    return {*slugs, *re.findall(r' id="([^"]+)"', text)}
