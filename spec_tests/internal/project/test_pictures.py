"""Every page of a method has a picture, and every picture says in words what is seen."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent.parent / "docs"
FOLDERS = ("hubkv", "graphkv", "hex", "scorers", "quantizers")
PICTURE = re.compile(r'!\[(?P<text>[^\]]*)\]\(|--8<-- "figures/\w+\.txt"')
PAGES = [
    f"{folder}/{page.name}"
    for folder in FOLDERS
    for page in (DOCS / folder).glob("*.md")
    if "\n::: reference." in page.read_text()
]
"""The pages that are about functions of the specification."""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_a_method_has_a_picture(page: str):
    found = list(PICTURE.finditer((DOCS / page).read_text()))
    assert found
    assert all(one["text"] is None or len(one["text"]) > 20 for one in found)
