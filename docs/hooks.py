"""A hook of mkdocs: what the plain page cannot say, the site has.

A function's formula becomes its whole card, and a notebook is saved under its paper's name.
"""

import re
from typing import Any

CARD = re.compile(r"<!-- function (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with mkdocstrings' directives in place of the parts for plain readers."""
    name = page.file.src_uri.replace("/", "-").removesuffix(".md")
    saved = markdown.replace("(walk.ipynb)", f'(walk.ipynb){{ download="{name}.ipynb" }}')
    return CARD.sub(r"::: \1", saved)
