"""The vectors of each function, folded below its equation, when the site is built."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from spec_tests.vectors.archive import archived_vectors

DIRECTIVE = re.compile(r"^::: reference\.(?:\w+\.)*(\w+)$(?!\n +\S)", re.MULTILINE)
SHORT = 420
"""The most characters of JSON that a generated vector has on a page; longer ones are left out."""
MOST = 6
"""The most generated vectors that a page shows of each function and level."""
Vector = dict[str, Any]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with the vectors of each function below it."""
    return DIRECTIVE.sub(lambda found: found[0] + folded(found[1]), markdown)


@cache
def vectors_by_function() -> dict[str, list[Vector]]:
    """Return the vectors of the archive by their function."""
    found: dict[str, list[Vector]] = {}
    for cases in archived_vectors().values():
        for vector in cases:
            found.setdefault(vector["function"], []).append(vector)
    return found


def folded(name: str) -> str:
    """Return the folded vectors of a function, or nothing if it has none."""
    vectors = vectors_by_function().get(name, [])
    if not vectors:
        return ""
    lines = ["", "", "<details data-search-exclude markdown>"]
    lines += [f"<summary>{len(vectors)} vectors of <code>{name}</code></summary>", ""]
    shown = [*chosen(vectors)]
    for vector in shown:
        lines += [description(vector), "", "```json", *call(vector), "```", ""]
    left = len(vectors) - len(shown)
    lines += [f"{left} more are in the archive." if left else "", "", "</details>", ""]
    return "\n".join(lines)


def chosen(vectors: list[Vector]) -> Iterator[Vector]:
    """Yield all vectors that are not generated, and some short generated ones of each level."""
    counts = dict.fromkeys(("values", "edges", "errors"), 0)
    for vector in vectors:
        if vector["origin"] == "generated":
            if counts[vector["level"]] == MOST or len("".join(call(vector))) > SHORT:
                continue
            counts[vector["level"]] += 1
        yield vector


def description(vector: Vector) -> str:
    """Return the id of a vector, what it is about, and what it finds."""
    about = [vector["origin"], vector["level"], *vector["flags"]]
    hunts = f". It finds: {vector['hunts']}" if "hunts" in vector else ""
    text = f"{', '.join(about)}{hunts}".replace("*", r"\*").replace("_", r"\_").replace("<", "&lt;")
    return f"**{vector['id']}** ({', '.join(vector['spec'])}): {text}"


def call(vector: Vector) -> list[str]:
    """Return the lines that show the inputs, the result and the tolerance of a vector."""
    fields = ("inputs", "expected", "tolerance")
    return [f'"{key}": {json.dumps(vector[key])}' for key in fields if key in vector]
