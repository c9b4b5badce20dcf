"""The public signatures, in words, so that every change of one shows in a diff.

`python -m spec_tests.project.test_signatures` writes `signatures.txt` anew.
"""

from collections.abc import Iterator
from inspect import Parameter, signature, unwrap
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import reference
from reference.said import admits

GOLDEN = Path(__file__).parent / "signatures.txt"


def lines(name: str) -> Iterator[str]:
    """Yield a public name, its parameters or fields with their ranges and defaults, its rules."""
    public = unwrap(getattr(reference, name))
    hints = get_type_hints(public.__init__ if plain_class(public) else public, include_extras=True)
    yield f"{name}{' (class)' * isinstance(public, type)}"
    for field, parameter in signature(public).parameters.items():
        star = "*" if parameter.kind == Parameter.KEYWORD_ONLY else ""
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        optional = "" if parameter.default is Parameter.empty else f" = {default}"
        yield f"    {star}{field}: {said(hints[field])}{optional}"
    if "return" in hints and not isinstance(public, type):
        yield f"    -> {said(hints['return'])}"
    if rules := vars(public).get("rules"):
        yield f"    requires {', '.join(rule.__name__ for rule in rules)}"


def plain_class(public: Any) -> bool:
    """Whether a public name is a class that is no named tuple."""
    return isinstance(public, type) and not hasattr(public, "_fields")


def said(hint: Any) -> str:
    """Say an annotation in the words of the contract, or as Python prints it."""
    if get_origin(hint) is tuple and ... not in get_args(hint):
        return ", ".join(map(said, get_args(hint)))
    try:
        return admits(hint)
    except AttributeError:
        return str(hint)


def text() -> str:
    """Return what the file must hold."""
    return "\n".join(line for name in reference.__all__ for line in lines(name)) + "\n"


def test_the_public_signatures_are_those_on_file():
    assert text() == GOLDEN.read_text(), (
        "python -m spec_tests.project.test_signatures writes them anew"
    )


if __name__ == "__main__":
    GOLDEN.write_text(text())
