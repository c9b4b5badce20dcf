"""Run every mutant against the test that must kill it, and print what came of it."""

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from spec_tests.implementation import under_test
from spec_tests.mutants import MUTANTS


class Trial:
    """A pytest plugin: keep only each mutant's killer, and write down how it ended."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {name: [] for name in MUTANTS}

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list) -> None:
        """Keep each mutant's killer and drop every other test."""
        chosen = [item for item in items if self.accused(item)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    def accused(self, item: pytest.Item) -> str | None:
        """Return the mutant that `item` must kill, if it is one's killer."""
        if (impl := under_test(item)) is None:
            return None
        name = impl.name.partition(":")[2]
        base, _, parameters = item.nodeid.partition("[")
        place, _, case = MUTANTS[name].killer.partition("[")
        return name if base.endswith(place) and case.rstrip("]") in parameters else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write down how a killer ended."""
        if report.when == "call":
            name = str(dict(report.user_properties)["impl"]).partition(":")[2]
            self.outcomes[name].append(report.outcome)


def run() -> dict[str, list[str]]:
    """Return, for each mutant, the outcomes of the tests that must kill it."""
    trial = Trial()
    impls = [word for name in MUTANTS for word in ("--impl", f"spec_tests.mutants:{name}")]
    quiet = ["-q", "--tb=no", "-p", "no:cacheprovider", "--ours"]
    # jaxtyping's plugin is already imported here, by the reference
    quiet += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with redirect_stdout(StringIO()):
        pytest.main([str(Path(__file__).parent.parent), *quiet, *impls], plugins=[trial])
    return trial.outcomes


if __name__ == "__main__":
    outcomes = run()
    if "--json" in sys.argv:
        print(json.dumps(outcomes))
    else:
        for name, mutant in MUTANTS.items():
            fate = "killed" if "failed" in outcomes[name] else "SURVIVES"
            print(f"{fate:<9}{name:<32}{mutant.function:<20}{mutant.lie}  [{mutant.killer}]")
