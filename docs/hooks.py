"""A hook of mkdocs: what the plain page cannot say, the site has.

A function's formula becomes its whole card, the anchor in a heading is the heading's own, a
notebook is saved under its paper's name, and pages have the settings that stand here.
"""

import re
from typing import Any

CARD = re.compile(r"<!-- function (\S+) -->\n.*?<!-- end -->", re.DOTALL)
ANCHOR = re.compile(r'^(#+ .+) <a id="([\w-]+)"(?: class="\w+")?></a>$', re.MULTILINE)
FOUND_EARLY = """errata/index graphkv/graph hex/cache hubkv/coverage hubkv/head_calibration
    hubkv/ratio_gate quantizers/gear quantizers/kivi scorers/cake scorers/expected_attention
    scorers/fastkvzip"""
SETTINGS: dict[str, dict[str, Any]] = {
    "attention": {"tags": ["GQA", "MQA", "MHA"], "search": {"boost": 4}},
    "changelog": {"search": {"exclude": True}},
    "command": {"tags": ["perplexity"], "search": {"boost": 4}},
    "compress": {"tags": ["compress", "cache"]},
    "graphkv/walk": {"search": {"boost": 8}},
    "hex/kcvt": {"tags": ["quantize", "quantise", "quantization", "quantisation"]},
    "hubkv/discount": {"tags": ["gamma"]},
    "hubkv/walk": {"tags": ["tutorial"], "search": {"boost": 8}},
    "scorers/streaming_llm": {"tags": ["sink"]},
    **{page: {"search": {"boost": 5}} for page in FOUND_EARLY.split()},
    **{f"{paper}/one_page": {"hide": ["toc"]} for paper in ("hubkv", "graphkv", "hex")},
    **{f"{paper}/move": {"hide": ["toc"]} for paper in ("graphkv", "hex")},
}
"""What other sites would show as a table above a page, were it there."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with mkdocstrings' directives in place of the parts for plain readers."""
    path = page.file.src_uri.removesuffix(".md")
    page.meta.update(SETTINGS.get(path, {}))
    name = path.replace("/", "-")
    saved = markdown.replace("(walk.ipynb)", f'(walk.ipynb){{ download="{name}.ipynb" }}')
    return CARD.sub(r"::: \1", ANCHOR.sub(r"\1 { #\2 }", saved))
