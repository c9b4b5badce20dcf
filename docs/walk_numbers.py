"""Write the numbers of the walks for the interactive pages: `python docs/walk_numbers.py`.

docs/js/walks.json has the words, keys and scores that the examples of the three walks define, those
of HubKV's interactive page, and the expander masks of HEX at each degree. docs/js/kv.js computes
the rest in the browser.
"""

import json
from typing import Any

from drawing import DOCS, examples

import reference as kv
from optimized._atomic_files import write_atomically

FILE = DOCS / "js/walks.json"
SPAN = 16
"""Tokens of HEX's walk that are compressed, and channels of its two heads together."""
DEGREES = (0, 3, 4, 6, 8, 12, 16)
"""What its expander can be set to keep of a token."""


def numbers() -> dict[str, Any]:
    """Return the numbers of each walk, tensors as nested lists."""
    pages = ("hubkv/walk", "hubkv/move", "graphkv/walk", "hex/walk")
    hubkv, fact, graphkv, hex_walk = (examples(DOCS / f"{page}.md") for page in pages)
    scored = ("words", "keys", "values", "queries", "scores", "protected")
    return {
        "hubkv": {name: plain(getattr(hubkv, name)) for name in scored},
        "fact": {name: plain(getattr(fact, name)) for name in scored},
        "graphkv": {name: plain(getattr(graphkv, name)) for name in scored},
        "hex": {name: plain(getattr(hex_walk, name)) for name in scored[:4]}
        | {"expanders": [expander(degree) for degree in DEGREES]},
    }


def expander(degree: int) -> dict[str, Any]:
    """Return the mask of a degree, its second singular value, and the bound on that."""
    mask = kv.expander_mask(SPAN, SPAN, degree / SPAN, near=degree == 0)
    second = round(kv.second_singular_value(mask), 3)
    bound = round(kv.ramanujan_bound(degree, degree), 3) if degree else None
    return {"degree": degree, "mask": mask.tolist(), "second": second, "bound": bound}


def plain(x: Any) -> Any:
    """Return a tensor as nested lists, anything else as it is."""
    return x.tolist() if hasattr(x, "tolist") else x


def text() -> str:
    """Return the numbers as JSON, a line for each entry."""
    walks = [
        f'"{walk}": {{\n' + ",\n".join(f'"{name}": {json.dumps(x)}' for name, x in found.items())
        for walk, found in numbers().items()
    ]
    return "{\n" + "\n},\n".join(walks) + "\n}\n}\n"


if __name__ == "__main__":
    write_atomically(FILE, text())
