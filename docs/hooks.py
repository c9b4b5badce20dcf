"""A hook of mkdocs: what the plain page cannot say, the site has.

A function's formula becomes its whole card, with the anchor that its heading has elsewhere; the
anchor in a heading is the heading's own; what is made when the site is built takes the place of a
sentence about it; a notebook is saved under its paper's name, and pages have the settings that
stand here. The search finds no examples.
"""

import json
import re
from pathlib import Path
from typing import Any

CARD = re.compile(r"<!-- function (\S+) -->\n.*?<!-- end -->", re.DOTALL)
EXAMPLE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
BUILT = re.compile(r"<!-- built\s(.*?)\s?-->\n.*?<!-- end -->", re.DOTALL)
ANCHOR = re.compile(r'^(#+ .+) <a id="([\w-]+)"(?: class="\w+")?></a>$', re.MULTILINE)
FOUND_EARLY = """errata/index graphkv/graph hex/cache hubkv/coverage hubkv/head_calibration
    hubkv/ratio_gate quantizers/gear quantizers/kivi scorers/cake scorers/expected_attention
    scorers/fastkvzip"""
NOT_FOUND = """adding changelog equations maintaining matrix performance publishing result_tables
    third_party/index"""
PAPERS = ("hubkv", "graphkv", "hex")
SETTINGS: dict[str, dict[str, Any]] = {
    "attention": {"tags": ["GQA", "MQA", "MHA"], "search": {"boost": 4}},
    "command": {"tags": ["perplexity"], "search": {"boost": 4}},
    "compress": {"tags": ["compress", "cache"]},
    "hex/kcvt": {"tags": ["quantize", "quantise", "quantization", "quantisation"]},
    "hubkv/discount": {"tags": ["gamma"]},
    "hubkv/walk": {"tags": ["tutorial"], "search": {"boost": 8}},
    "puzzles/index": {"hide": ["toc"], "search": {"boost": 4}},
    "puzzles/hints": {"hide": ["toc"], "search": {"exclude": True}},
    "scorers/streaming_llm": {"tags": ["sink"]},
    **{page: {"search": {"boost": 5}} for page in FOUND_EARLY.split()},
    **{page: {"search": {"exclude": True}} for page in NOT_FOUND.split()},
    **{f"{paper}/walk": {"search": {"boost": 8}} for paper in ("graphkv", "hex")},
    **{f"{paper}/move": {"hide": ["toc"]} for paper in PAPERS},
    **{f"{paper}/one_page": {"hide": ["toc"], "search": {"exclude": True}} for paper in PAPERS},
}
"""What other sites would show as a table above a page, were it there."""


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return a page with mkdocstrings' directives in place of the parts for plain readers."""
    path = page.file.src_uri.removesuffix(".md")
    page.meta.update(SETTINGS.get(path, {}))
    name = path.replace("/", "-")
    for pages, pattern, text in (  # some pages or all, what is found there, what it becomes
        ("", r"\(walk\.ipynb\)", rf'\g<0>{{ download="{name}.ipynb" }}'),
        ("", r"\(puzzles\.(py|ipynb)\)", r"\g<0>{ download }"),
        ("results result_tables", r"(?<=\d) (?=\d{3}\b|%)", "\u00a0"),
        ("", BUILT, r"\1"),
        ("", ANCHOR, r"\1 { #\2 }"),
        ("", CARD, with_anchor),
    ):
        if not pages or path in pages.split():
            markdown = re.sub(pattern, text, markdown)
    return markdown


def with_anchor(card: re.Match[str]) -> str:
    """Return the directive for a card, behind the anchor by which plain pages find its heading."""
    return f'<a id="{card[1].rpartition(".")[2].lower()}"></a>\n\n::: {card[1]}'


def on_post_build(config: Any, **_: Any) -> None:
    """Take examples out of the search's index: each names a function that a heading names."""
    file = Path(config.site_dir, "search", "search_index.json")
    index = json.loads(file.read_text())
    for section in index["docs"]:
        section["text"] = EXAMPLE.sub("", section["text"])
    file.write_text(json.dumps(index, separators=(",", ":"), ensure_ascii=False))
