"""Wrong implementations, each a one-line lie, and the law or vector that finds it out.

They stand in each idea's `lies.py`. `pytest spec_tests --impl spec_tests.mutants:NAME` fails for
every one of them; `python -m spec_tests.mutants` runs each against the test it names and prints the
report.
"""

from spec_tests.inputs import modules
from spec_tests.mutants.make import MUTANTS

FILES = modules("*/**/lies.py")
globals().update({name: mutant.module for name, mutant in MUTANTS.items()})
