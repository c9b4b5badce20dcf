"""A griffe extension that gives each function the vectors which its page shows."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from griffe import Extension, Object

from spec_tests.vectors.archive import archived_vectors

SHORT = 420
"""The most characters of JSON that a generated vector has on a page; longer ones are left out."""
MOST = 6
"""The most generated vectors that a page shows of each function and level."""
Vector = dict[str, Any]


class Vectors(Extension):
    """Keep the vectors of a public name for the template of its page."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Add the vectors that are shown, each with what it is about, and the number of all."""
        if obj.is_function or obj.is_class:
            vectors = vectors_by_function().get(obj.name, [])
            told = [(one["id"], description(one), "\n".join(call(one))) for one in chosen(vectors)]
            obj.extra["vectors"] = dict(shown=told, count=len(vectors))


@cache
def vectors_by_function() -> dict[str, list[Vector]]:
    """Return the vectors of the archive by their function."""
    found: dict[str, list[Vector]] = {}
    for cases in archived_vectors().values():
        for vector in cases:
            found.setdefault(vector["function"], []).append(vector)
    return found


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
    """Return the equations and the kind of a vector, and what it finds."""
    about = ", ".join([vector["origin"], vector["level"], *vector["flags"]])
    hunts = f". It finds: {vector['hunts']}" if "hunts" in vector else ""
    return f"({', '.join(vector['spec'])}): {about}{hunts}"


def call(vector: Vector) -> list[str]:
    """Return the lines that show the inputs, the result and the tolerance of a vector."""
    fields = ("inputs", "expected", "tolerance")
    return [f'"{key}": {json.dumps(vector[key])}' for key in fields if key in vector]
