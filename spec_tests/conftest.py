"""Run the suite against any implementation: `pytest spec_tests --impl some.module`."""

import gc
import os
import sys
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

import optimized  # noqa: F401 - before a folder with another module of that name is on the path
import reference
from spec_tests.implementation import TRITON, Implementation, default_implementations, under_test
from spec_tests.index import are_undefined_in_papers
from spec_tests.options import LEVELS, OPTIONS, PAPERS
from spec_tests.program import NotAProgram
from spec_tests.report.plugin import Plugin
from spec_tests.report.report_data import lines_on_misspelt_names
from spec_tests.tests_by_function import (
    NEEDS,
    ORDER,
    Tests,
    calls_by_name,
    count_tests_by_function_and_kind,
    functions_called_by,
    functions_called_in,
    functions_of_test,
    kind_of,
)

quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "conformance",
    max_examples=50,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],  # the report replaces Phase.explain
    suppress_health_check=quiet,
)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=quiet)
# One failure detects a mutant: no smallest counterexample is needed.
settings.register_profile(
    "detecting", settings.get_profile("conformance"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("conformance")

# Hypothesis collects constants from the source of every loaded module and draws them as examples.
# An empty set replaces them. Otherwise every loaded module would change the examples of every law.
# Hypothesis would also write the constants into the user's folder.
providers._get_local_constants = Constants

HERE = Path(__file__).parent
REPORT = "conformance report"
KERNELS = HERE / "kernels"
OF_THIS_REPOSITORY = HERE / "internal"
FOR_CONTRIBUTORS = (OF_THIS_REPOSITORY, KERNELS)
"""Tests of models, the command, the suite itself and of how kernels work: run if the command
line names them."""
NESTED = "_hypothesis_internal_use_settings"
INTERPRETED = ("test_agreement.py", "test_errors.py", "test_requires_grad.py", "test_vectors.py")
"""What runs in Triton's interpreter by default; `--impl optimized.kernels` also runs the laws."""
FEW = 5
"""Examples of an agreement there; `--impl optimized.kernels` runs them all."""
PART = 0.4
"""Part of a law's examples for the reference by default; `--impl reference` runs them all.

The optimized layers run half of it, since agreement tests compare them with the reference too. Of
602 mutants all are detected at the full number, and 598 with at most 20 examples:
`python -m spec_tests.mutants --examples=20`.
"""
LONGEST = "test_every_mutant_is_killed"
MARKERS = (
    "spec(*ids): the equations and theorems that a test checks",
    "argument_checks: only for modules that check arguments: `optimized.vector` does not",
    "own_body: only for functions that are the module's own, not the reference's",
    "ours_only: only for this project's layers: other random streams or messages are correct too",
    "extension: of this project's extensions: another module is asked only with `--ours`",
)
FIRST_SETTINGS = pytest.StashKey[dict]()
IMPLEMENTATIONS = pytest.StashKey[list[Implementation]]()
LAWS_NOT_ASKED = pytest.StashKey[Tests]()


def pytest_addoption(parser):
    """Add the options of the conformance check."""
    group = parser.getgroup("conformance")
    for name, how in OPTIONS.items():
        group.addoption(name, **how)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Distribute tests over xdist's workers by `worksteal`, unless `--dist` is given.

    An idle worker takes tests from a busy one. The tests of a file mostly stay on one worker, which
    then builds their shared data once.
    """
    if getattr(config.option, "numprocesses", None) and config.option.dist == "no":
        config.option.dist = "worksteal"


def pytest_configure(config):
    """Import the implementations and poison uninitialised memory."""
    for line in MARKERS:
        config.addinivalue_line("markers", line)
    sys.path.insert(0, str(config.invocation_params.dir))
    config.option.importmode = "importlib"  # files in different folders have the same name
    if hasattr(config, "workerinput"):  # one thread each: the workers occupy every core
        torch.set_num_threads(1)
        os.environ["OMP_NUM_THREADS"] = "1"
    if config.getoption("--mutants"):
        settings.load_profile("detecting")
    if config.getoption("--hypothesis-seed") is not None:  # `derandomize` overrides the seed
        settings.register_profile("seeded", settings.default, derandomize=False)
        settings.load_profile("seeded")
    device = config.getoption("--device")
    try:
        torch.zeros(1, device=device).cpu()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise pytest.UsageError(f"--device: {error}") from error
    for form in ("html", "json"):
        if file := config.getoption(f"--report-{form}"):
            try:
                Path(file).open("a").close()
            except OSError as error:
                message = f"--report-{form}: {file}: {error.strerror}"
                raise pytest.UsageError(message) from error
    names = config.getoption("--impl") or default_implementations(device)
    try:
        ours = config.getoption("--ours")
        paper = PAPERS.get(config.getoption("--paper"), "")
        how = device, ours, paper, config.getoption("--call-limit")
        impls = [Implementation(name, *how) for name in names]
    except (ImportError, AttributeError) as error:
        given = "--command" if isinstance(error, NotAProgram) else "--impl"
        raise pytest.UsageError(f"{given}: {error}") from error
    if idle := [impl for impl in impls if not impl.offered]:
        raise pytest.UsageError(f"--impl: {'; '.join(map(nothing_to_test_message, idle))}")
    config.stash[IMPLEMENTATIONS] = impls
    ours = ("optimized", "spec_tests.mutants")  # only these modules run our kernels
    interpreted = TRITON and os.environ.get("TRITON_INTERPRET") == "1"
    if interpreted and any(n.startswith(ours) for n in names):
        import_module("spec_tests.kernels.interpreter").patch_once()
    # Fill every torch.empty with NaN, so that an element that no kernel writes is detected.
    # `use_deterministic_algorithms` has the same effect, but imports the compiler.
    torch.set_deterministic_debug_mode("error")
    if not config.getoption("--mutants"):
        config.pluginmanager.register(Plugin(config, config.stash[IMPLEMENTATIONS]), REPORT)
    if config.getoption("--impl"):  # the report shows the failures
        config.option.tbstyle = config.option.tbstyle.replace("auto", "no")
        config.option.reportchars = config.option.reportchars.replace("a", "")


def nothing_to_test_message(impl: Implementation) -> str:
    """Return the usage error for a module without a testable function, with similar names in it."""
    of = f"of {impl.paper}" if impl.paper else "of the specification"
    first = next(name for name in reference.__all__ if name in impl.judged & impl.lacks)
    message = f"{impl.name} offers no function {of}, such as {first}"
    if impl.unasked:
        message += f"; {', '.join(impl.unasked)}, which no paper defines, needs --ours"
    return message + "".join(f"; {line}" for line in lines_on_misspelt_names(impl.misspelt))


def pytest_ignore_collect(collection_path, config):
    """Ignore the tests of this repository, and files that use no function of a named module."""
    if config.getoption("--mutants"):
        return None
    paths = [Path(word.partition("::")[0]).resolve() for word in config.args]
    if collection_path in FOR_CONTRIBUTORS and not any(
        collection_path in (path, *path.parents) for path in paths
    ):
        return True
    if not is_named(config):
        return None
    if collection_path == OF_THIS_REPOSITORY:
        return True
    if collection_path == KERNELS and not any(i.ours for i in config.stash[IMPLEMENTATIONS]):
        return True
    if collection_path.parent == HERE or not collection_path.name.startswith("test_"):
        return None
    offered = {n for impl in config.stash[IMPLEMENTATIONS] for n in impl.judged - impl.lacks}
    called = calls_by_name(collection_path) or functions_called_in(collection_path, offered)
    return None if called else True


class WithoutTriton(pytest.Module):
    """A file of kernel tests on a machine without Triton."""

    def collect(self):
        """Skip the file: its imports would fail."""
        pytest.skip("Triton is not installed, so there are no kernels", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    """Skip the kernel tests where Triton is not installed."""
    if not TRITON and module_path.parent == KERNELS:
        return WithoutTriton.from_parent(parent, path=module_path)
    return None


def pytest_generate_tests(metafunc):
    """Run each test with an `impl` fixture on every implementation that offers what it needs."""
    if "impl" in metafunc.fixturenames:
        impls, test = metafunc.config.stash[IMPLEMENTATIONS], metafunc.definition
        if metafunc.config.getoption("--mutants"):
            impls = [impl for impl in impls if impl.module.is_detected_by(test.nodeid)]
        else:
            needed = functions_called_by(test.path, test.name)  # read in the test's source
            laws = metafunc.config.stash.setdefault(LAWS_NOT_ASKED, Counter())
            for impl, lacked in ((impl, impl.lacks_part(needed)) for impl in impls):
                told = lacked and (impl.asked or not test.get_closest_marker("extension"))
                marks = test.iter_markers("spec") if told else ()
                needs = f"{NEEDS}{', '.join(sorted(lacked))}"
                laws.update((impl.name, spec, needs) for mark in marks for spec in mark.args)
            impls = [impl for impl in impls if impl.offers(needed)]
        if test.get_closest_marker("argument_checks"):
            impls = [impl for impl in impls if impl.checks_arguments]
        if not (test.path.name in INTERPRETED or metafunc.config.getoption("--impl")):
            impls = [impl for impl in impls if not impl.is_interpreted]
        metafunc.parametrize("impl", impls, ids=repr, scope="session")


def pytest_collection_modifyitems(config, items):
    """Drop the tests that do not apply to a module under test; mark the expected failures."""
    plugin = config.pluginmanager.getplugin(REPORT)
    collected, items[:] = [*items], [item for item in items if is_applicable(item)]
    if plugin:
        plugin.existing = count_tests_by_function_and_kind(
            collected, items, config.stash[IMPLEMENTATIONS], plugin.level
        ) | config.stash.get(LAWS_NOT_ASKED, Counter())
    for item in items:
        impl = under_test(item)
        if impl and not impl.ours:  # a warning of a third-party module is not a failure
            item.add_marker(pytest.mark.filterwarnings("ignore"))
    items.sort(key=lambda item: item.name != LONGEST)  # else every worker waits for it
    if config.getoption("--impl"):
        items.sort(key=lambda item: ORDER.index(kind_of(item.path)))
    if file := config.getoption("--xfails"):
        expect_failures(file, items)
    if config.getoption("--level") != LEVELS[-1]:
        items[:] = [item for item in items if getattr(item, "originalname", "") != "test_refuses"]


def pytest_collection_finish():
    """Collect garbage seldom, and not the collected tests, which live until the end."""
    gc.freeze()
    gc.set_threshold(20_000)


def is_named(config: pytest.Config) -> bool:
    """Whether `--impl` or `--paper` is given."""
    return bool(config.getoption("--impl") or config.getoption("--paper"))


def is_applicable(item: pytest.Item) -> bool:
    """Whether a test can fail on its module under test, or is a test of this repository."""
    if not isinstance(item, pytest.Function) or "impl" not in item.fixturenames:
        return not is_named(item.config)
    impl = under_test(item)
    if impl is None or item.config.getoption("--mutants"):
        return impl is not None and impl.module.is_detected_by(item.nodeid)
    if not impl.offers(functions_of_test(item)) or not impl.is_asked(functions_of_test(item)):
        return False
    if item.get_closest_marker("own_body") and not impl.has_own(str(item.callspec.params["name"])):
        return False
    if item.get_closest_marker("ours_only") and not impl.ours:
        return False
    if item.get_closest_marker("extension") and not impl.asked:
        return False
    return impl.asked or not are_undefined_in_papers(
        i for mark in item.iter_markers("spec") for i in mark.args
    )


def expect_failures(file: str, items: list[pytest.Item]) -> None:
    """Turn each line of `file` into a strict xfail; a line that matches nothing is an error."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--xfails: {error}") from error
    lines = (line.partition("#") for line in text.splitlines())
    expected = {test.strip(): why.strip() for test, _, why in lines if test.strip()}
    for item in items:
        for test in [t for t in expected if t in item.nodeid]:
            item.add_marker(pytest.mark.xfail(reason=expected[test], strict=True))
    unknown = [t for t in expected if not any(t in item.nodeid for item in items)]
    if unknown:
        raise pytest.UsageError(f"{file}: no such test: {', '.join(unknown)}")


def pytest_runtest_setup(item):
    """Reset a law's Hypothesis settings, with fewer examples where each of them is slow.

    Hypothesis nests the settings once more for every parametrised run of a function. Without the
    reset Python's stack overflows after a thousand runs.
    """
    law, impl = getattr(item, "obj", None), under_test(item)
    if hasattr(law, NESTED):
        first = item.config.stash.setdefault(FIRST_SETTINGS, {})
        chosen = first.setdefault(law, getattr(law, NESTED))
        if impl and not item.config.getoption("--impl"):
            chosen = settings(chosen, max_examples=examples(impl, chosen.max_examples))
        if most := item.config.getoption("--examples"):
            chosen = settings(chosen, max_examples=min(most, chosen.max_examples))
        setattr(law, NESTED, chosen)


def examples(impl: Implementation, wanted: int) -> int:
    """Return how many of the `wanted` examples of a law a layer of ours runs by default.

    For the reference, a law that sets its own number of examples keeps it.
    """
    if impl.is_interpreted:
        return min(FEW, wanted)
    if wanted != settings().max_examples:
        return wanted if impl.name == "reference" else (wanted + 1) // 2
    return int(wanted * (PART if impl.name == "reference" else PART / 2))


def pytest_sessionfinish(session):
    """Fail the run under `--complete` if a function is missing."""
    impls = session.config.stash.get(IMPLEMENTATIONS, [])
    if session.config.getoption("--complete") and any(impl.lacks & impl.judged for impl in impls):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
