"""Mutants: implementations with one wrong line, and the law or vector that must detect each.

They stand in each idea's `mutants.py`. `pytest spec_tests --impl spec_tests.mutants:NAME` fails for
every one of them; `python -m spec_tests.mutants` runs each against the test it names and prints the
report.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return the module of a mutant, or `MUTANTS`: all are read when one is first asked for."""
    if name.startswith("__"):
        raise AttributeError(name)
    from spec_tests.inputs import modules
    from spec_tests.mutants.make import MUTANTS

    modules("*/**/mutants.py")
    if name != "MUTANTS" and name not in MUTANTS:
        raise AttributeError(f"there is no mutant {name}")
    return MUTANTS if name == "MUTANTS" else MUTANTS[name].module
