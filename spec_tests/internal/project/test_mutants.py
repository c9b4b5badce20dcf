"""A law or a vector, not agreement alone, detects every mutant."""

import json

from spec_tests.internal.project.run_python import run_python
from spec_tests.mutants import MUTANTS


def test_every_mutant_is_killed():
    """One separate run checks each mutant against its detecting test."""
    done = run_python("-m", "spec_tests.mutants", "--json")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert list(outcomes) == list(MUTANTS)
    unmatched = [name for name in MUTANTS if not outcomes[name]]
    assert not unmatched, f"no test has the name of their detecting tests: {unmatched}"
    alive = [name for name in MUTANTS if "failed" not in outcomes[name]]
    assert not alive, f"their detecting tests pass: {alive}"


def test_every_killer_is_a_law_or_a_vector():
    generic = ("test_agreement", "test_errors", "internal/")
    others = [name for name, m in MUTANTS.items() if any(file in m.detected_by for file in generic)]
    assert not others
