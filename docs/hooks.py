"""A hook of mkdocs: where the plain page has a function's formula, the site has its whole card."""

import re
from typing import Any

CARD = re.compile(r"<!-- function (\S+) -->\n.*?<!-- end -->", re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page with mkdocstrings' directives in place of the parts for plain readers."""
    return CARD.sub(r"::: \1", markdown)
