"""What is correct passes, whatever its order of sums: `python -m spec_tests.variants`."""

import subprocess
import sys
from inspect import isfunction

import pytest

import reference
from spec_tests.index import ROOT
from spec_tests.variants.make import MOST, VARIANTS

EXAMPLES = "3"
"""Of a law, here; `python -m spec_tests.variants` tries all, as every night."""
HERE = ("values_1", "edges_1")
"""What is run here: a variant of nearly every function."""
SLOW = "not every_row_runs_through_a_prompt"
"""A stream of 1160 tokens takes minutes in loops."""


def test_every_public_function_has_a_correct_variant():
    functions = {n for n in reference.__all__ if isfunction(getattr(reference, n))}
    assert functions <= {variant.name for variant in VARIANTS}


def test_no_variant_is_left_out():
    places = [(variant.name, variant.level) for variant in VARIANTS]
    assert max(map(places.count, places)) <= MOST


@pytest.mark.parametrize("name", HERE)
def test_a_correct_module_passes(name):
    words = ["-m", "spec_tests.variants", name, "--examples", EXAMPLES, "-k", SLOW]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
