"""The file `signatures.txt` holds the public signatures, so that each change shows in a diff.

A new name needs a line there only at the next release. `python -m
spec_tests.internal.project.test_signatures_file` writes the file again.
"""

import re
from collections.abc import Callable, Iterator
from inspect import Parameter, getdoc, isfunction, signature, unwrap
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import reference
from optimized import distributed
from reference.contract.docstrings import admits
from spec_tests.index import ROOT

GOLDEN = Path(__file__).parent / "signatures.txt"


def lines(name: str) -> Iterator[str]:
    """Yield a public name, its parameters or fields with ranges and defaults, and its rules."""
    public = unwrap(getattr(reference, name))
    is_class = isinstance(public, type)
    plain = is_class and not hasattr(public, "_fields")  # no named tuple
    hints = get_type_hints(public.__init__ if plain else public, include_extras=True)
    yield f"{name}{' (class)' * is_class}"
    for field, parameter in signature(public).parameters.items():
        star = "*" if parameter.kind == Parameter.KEYWORD_ONLY else ""
        default = getattr(parameter.default, "__name__", repr(parameter.default))
        optional = "" if parameter.default is Parameter.empty else f" = {default}"
        yield f"    {star}{field}: {wording(hints[field])}{optional}"
    if "return" in hints and not is_class:
        yield f"    -> {wording(hints['return'])}"
    if rules := vars(public).get("rules"):
        yield f"    requires {', '.join(rule.__name__ for rule in rules)}"


def wording(hint: Any) -> str:
    """Return an annotation in the words of error messages, or as Python prints it."""
    if get_origin(hint) is tuple and ... not in get_args(hint):
        return ", ".join(map(wording, get_args(hint)))
    return admits(hint)


def text() -> str:
    """Return the content of `signatures.txt` with all public names."""
    return "\n".join(line for name in reference.__all__ for line in lines(name)) + "\n"


def by_name(text: str) -> dict[str, str]:
    """Return the signatures of a file by their first line, a name."""
    parts = re.split(r"(?m)^(?=\S)", text)[1:]
    return dict(part.split("\n", 1) for part in parts)


@pytest.mark.parametrize("settings", [reference.HubSettings, reference.GraphSettings])
def test_a_default_is_the_same_in_the_settings_and_in_every_function(settings):
    """The test finds a default that is changed in one place and forgotten in another."""
    package, names = settings.__module__.rpartition(".")[0], reference.__all__
    functions = [unwrap(f) for f in (getattr(reference, name) for name in names) if isfunction(f)]
    wanted = settings._field_defaults
    found = {
        (function.__name__, name): default
        for function in functions
        if function.__name__ != "nms" and function.__module__.startswith(package)
        for name, default in defaults(function).items()
        if name in wanted
    }
    assert len(found) > len(wanted)
    assert not {name: value for name, value in found.items() if value != wanted[name[1]]}


@pytest.mark.parametrize("name", distributed.__all__)
def test_a_default_is_the_same_over_ranks(name):
    shared = {"group": None} | defaults(unwrap(getattr(reference, name)))
    assert defaults(getattr(distributed, name)) == shared


def defaults(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the default of each parameter that has one."""
    parameters = signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not Parameter.empty}


def test_the_public_signatures_are_those_on_file():
    """A new name needs none before its release."""
    released = "\n## Unreleased\n" not in (ROOT / "docs/changelog.md").read_text()
    old, new = by_name(GOLDEN.read_text()), by_name(text())
    changed = [name for name in (old | new if released else old) if old.get(name) != new.get(name)]
    assert not changed, (
        "python -m spec_tests.internal.project.test_signatures_file writes them anew"
    )


def test_a_docstring_says_the_rules_of_its_function_once_for_each_kind_of_error():
    for name in (n for n in reference.__all__ if isfunction(getattr(reference, n))):
        public = getattr(reference, name)
        raises = (getdoc(public) or "").partition("\n\nRaises:\n")[2].partition("\n\n")[0]
        kinds = re.findall(r"(?m)^    (\w+): ", raises)
        assert len(kinds) == len(set(kinds)) > 0, name
        for rule in vars(unwrap(public)).get("rules", ()):
            sentence = (rule.__doc__ or "").partition("\n")[0].removeprefix("Refuse ").rstrip(".")
            assert sentence in " ".join(raises.split()), name


if __name__ == "__main__":
    GOLDEN.write_text(text())
