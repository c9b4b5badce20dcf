"""The suite bites: every mutant dies by a law or a vector, never by agreement alone."""

import json
import subprocess
import sys

import pytest

from spec_tests.mutants import MUTANTS


@pytest.fixture(scope="session")
def outcomes() -> dict[str, list[str]]:
    """How the test that must kill each mutant ended, in one run of its own."""
    command = [sys.executable, "-m", "spec_tests.mutants", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_killed(outcomes, name):
    assert outcomes[name], f"no test is called {MUTANTS[name].killer}"
    assert "failed" in outcomes[name], f"{MUTANTS[name].killer} lets it live"


@pytest.mark.parametrize("name", MUTANTS)
def test_killer_is_a_law_or_a_vector(name):
    generic = ("test_agreement", "test_errors", "test_index", "test_mutants")
    assert not any(file in MUTANTS[name].killer for file in generic)
