"""Run every mutant against its detecting test, and print the outcomes.

`python -m spec_tests.mutants` runs all of them. With paths, such as `hubkv kernels/hex`, it runs
the mutants of files under these.
"""

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from spec_tests.implementation import Implementation, under_test
from spec_tests.mutants import MUTANTS

HERE = Path(__file__).parent.parent


class Trial:
    """A pytest plugin: runs each mutant against its detecting test and records the outcome."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {name: [] for name in MUTANTS}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip the other cases of a test once one has detected the mutant."""
        impl = under_test(item)
        if impl and "failed" in self.outcomes[mutant_name(impl)]:
            pytest.skip("already detected")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        """Record how a detecting test ended: only a failed assertion detects."""
        report = yield
        if call.when == "call" and (impl := under_test(item)) is not None:
            failed = call.excinfo is not None and is_failed_assertion(call.excinfo.value)
            crashed = call.excinfo is not None and not failed
            outcome = "failed" if failed else "crashed" if crashed else "passed"
            self.outcomes[mutant_name(impl)].append(outcome)
        return report


def mutant_name(impl: Implementation) -> str:
    """Return the name under which a mutant is registered."""
    return impl.name.partition(":")[2]


def is_failed_assertion(error: BaseException) -> bool:
    """Whether `error` is a failed assertion, is raised from one, or is a group that holds one."""
    if isinstance(error, BaseExceptionGroup):
        return any(is_failed_assertion(part) for part in error.exceptions)
    if error.__cause__ is not None and is_failed_assertion(error.__cause__):
        return True
    return isinstance(error, AssertionError | pytest.fail.Exception)


def run(*words: str, places: tuple[str, ...] = ("",)) -> dict[str, list[str]]:
    """Return the outcomes of the detecting tests of each mutant of files under `places`.

    `words` are further arguments of pytest, such as `--hypothesis-seed=1`.
    """
    trial = Trial()
    chosen = {name: mutant for name, mutant in MUTANTS.items() if mutant.place.startswith(places)}
    impls = [word for name in chosen for word in ("--impl", f"spec_tests.mutants:{name}")]
    quiet = ["-q", "--tb=no", "-p", "no:cacheprovider", "--ours", "--mutants"]
    # jaxtyping's plugin is already imported here, by the reference
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    # collecting the others would take as long as most of the detecting tests
    tests = {mutant.detected_by.partition("::")[0] for mutant in chosen.values()}
    files = [str(HERE / file) for file in sorted(tests) if (HERE / file).exists()]
    with redirect_stdout(StringIO()):
        pytest.main([*files, *quiet, *impls, *words], plugins=[trial])
    return {name: trial.outcomes[name] for name in chosen}


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--json"]
    if {"-h", "--help"} & {*words}:
        print(__doc__, "`--json` prints JSON; other options are pytest's.", sep="")
        sys.exit()
    places = tuple(word for word in words if not word.startswith("-"))
    if idle := [p for p in places if not any(m.place.startswith(p) for m in MUTANTS.values())]:
        sys.exit(f"no mutant's file lies under {', '.join(idle)}, such as hubkv or kernels/hex")
    outcomes = run(*(word for word in words if word.startswith("-")), places=places or ("",))
    if "--json" in sys.argv:
        print(json.dumps(outcomes))
    else:
        for name, mutant in MUTANTS.items():
            if name not in outcomes:
                continue
            fate = "detected" if "failed" in outcomes[name] else "MISSED"
            print(f"{fate:<10}{name:<32}{mutant.place:<28}{mutant.fault}  [{mutant.detected_by}]")
