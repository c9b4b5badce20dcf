"""Mutants: implementations with one wrong line, and the law or vector that must detect each.

The `mutants.py` of each idea defines them. `pytest spec_tests --impl spec_tests.mutants:NAME` fails
for every mutant. `python -m spec_tests.mutants` runs each against its detecting test alone and
prints the outcomes.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return a mutant, or `MUTANTS`; the first access imports all of them."""
    if name.startswith("__"):
        raise AttributeError(name)
    from spec_tests.inputs import modules
    from spec_tests.mutants.registry import MUTANTS

    modules("*/**/mutants.py")  # each file registers its mutants; no list names it
    if name != "MUTANTS" and name not in MUTANTS:
        raise AttributeError(f"there is no mutant {name}")
    return MUTANTS if name == "MUTANTS" else MUTANTS[name]
