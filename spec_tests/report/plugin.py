"""The pytest plugin of the report: it diagnoses failing calls and prints a card a function."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis.errors import HypothesisException

from optimized._atomic_files import write_atomically
from spec_tests.implementation import LACKS, Implementation, under_test
from spec_tests.limits import limited_memory
from spec_tests.options import LEVELS
from spec_tests.program import LeftOut, NotSupported
from spec_tests.report import html, report_data, terminal
from spec_tests.report.calls import LAST, record_passing_calls
from spec_tests.report.fault_diagnosis import NEVER, Fault, find_fault
from spec_tests.report.messages import equations_of, failure_claims
from spec_tests.tests_by_function import Tests, functions_of_test, kind_of

FAILURES = (Exception, pytest.fail.Exception)
EXISTING = "existing tests"
SECONDS = 5.0
"""Time for the failing examples of one law, after which shrinking stops: of the processor, or of
the clock if a program in another process works."""


class Plugin:
    """Diagnose the failing tests of the modules under test, and write the report."""

    def __init__(self, config: pytest.Config, impls: list[Implementation]):
        self.config, self.impls = config, impls
        self.level = config.getoption("--level")
        self.existing: Tests = Counter()

    def pytest_sessionfinish(self) -> None:
        """Send the number of tests by kind from a worker of xdist."""
        getattr(self.config, "workeroutput", {})[EXISTING] = dict(self.existing)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Merge a worker's number of tests; each worker collects all of them."""
        self.existing |= Counter(getattr(node, "workeroutput", {}).get(EXISTING, {}))

    def pytest_runtest_setup(self, item: Any) -> None:
        """Skip a test of a function that is no longer called, since its calls do not end."""
        impl = under_test(item)
        if impl and (gone := sorted(impl.limit.given_up & functions_of_test(item))):
            raise LeftOut(f"{', '.join(gone)} does not end")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Run a test, and diagnose each failing example."""
        if (impl := under_test(item)) is None:
            return (yield)
        with memory_limit(impl):
            yield from self.run_diagnosed(item)

    def run_diagnosed(self, item: Any) -> Iterator[None]:
        """Run a test of a module, and diagnose each failing example."""
        LAST.clear()
        law = getattr(getattr(item, "obj", None), "hypothesis", None)
        left_out: list[pytest.skip.Exception | None] = []
        try:
            if law is None:
                with self.diagnosing(item.nodeid):
                    yield
            else:
                body, law.inner_test = law.inner_test, self.example(item, left_out)
                try:
                    yield
                except LawStopped as left:
                    raise left.error from None
                finally:
                    law.inner_test = body
        finally:
            LAST.clear()
        if left_out and left_out[0] and None not in left_out:
            raise left_out[0]

    def example(
        self, item: Any, left_out: list[pytest.skip.Exception | None]
    ) -> Callable[..., None]:
        """Return the body of a law that skips examples outside the level or dtypes of the module.

        It appends their reasons to `left_out`, and None for an example whose calls were answered.
        """
        body, failing = item.obj.hypothesis.inner_test, 0.0
        program = (impl := under_test(item)) and impl.program
        clock = time.monotonic if program else time.thread_time

        @wraps(body)
        def run(*args: Any, **kwargs: Any) -> None:
            nonlocal failing
            LAST.clear()
            began = clock()
            try:
                with self.diagnosing(item.nodeid):
                    body(*args, **kwargs)
                if LAST:  # an example that calls nothing shows nothing
                    left_out.append(None)
            except (AboveLevel, NotSupported) as why:
                left_out.append(why)
            except FAILURES as error:
                failing += clock() - began
                fault = vars(error).get("fault")
                if failing > SECONDS or (fault and fault.kind == NEVER):
                    raise LawStopped(error) from None
                raise

        return run

    @contextmanager
    def diagnosing(self, test: str) -> Iterator[None]:
        """Attach the fault to an exception, so that Hypothesis shrinks each edge separately."""
        try:
            yield
            record_passing_calls(test)
        except HypothesisException:
            raise
        except FAILURES as error:
            fault = find_fault(LAST, getattr(error, "compared", ()))
            if LEVELS.index(fault.level) > LEVELS.index(self.level):
                raise AboveLevel(
                    f"fails at the level {fault.level}, which --level leaves out"
                ) from None
            vars(error)["fault"] = fault
            last: BaseException = error
            while last.__context__ is not None:
                last = last.__context__
            last.__context__ = failure_context(fault.kind, fault.edge, fault.vacuous)()
            raise

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: pytest.CallInfo):
        """Add a test's functions, equations and kind to its report, and its claims if it fails."""
        report = yield
        if (impl := under_test(item)) is not None:
            if report.when == "call" or not report.passed:  # pytest lists no other report
                asks = sorted(functions_of_test(item))
                report.user_properties += [("impl", impl.name), ("spec", equations_of(item))]
                report.user_properties += [("asks", asks), ("kind", kind_of(item.path))]
            if call.excinfo and call.excinfo.errisinstance(NotSupported):
                report.user_properties.append(("unsupported", True))
            elif call.excinfo and call.excinfo.errisinstance(LeftOut):
                report.user_properties.append(("left_out", str(call.excinfo.value)))
            elif call.excinfo and not call.excinfo.errisinstance(pytest.skip.Exception):
                with memory_limit(impl):
                    found = [*failure_claims(impl, item, faults_of(call.excinfo.value))]
                report.user_properties.append(("claims", found))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the cards, and write the files of `--report-json` and `--report-html`."""
        skips = terminalreporter.stats.get("skipped", [])
        skips[:] = [skip for skip in skips if LACKS not in str(skip.longrepr)]
        report = report_data.build_report(
            terminalreporter.stats, self.impls, self.existing, self.config
        )
        terminal.write(terminalreporter, report, self.config)
        as_json = partial(json.dumps, indent=1, ensure_ascii=False)
        for option, text in (("--report-json", as_json), ("--report-html", html.page)):
            if file := self.config.getoption(option):
                write_atomically(Path(file), text(report).rstrip() + "\n")


def memory_limit(impl: Implementation) -> AbstractContextManager[None]:
    """Return a context that limits the memory of a module's calls; a program has its own limit."""
    return nullcontext() if impl.ours or impl.program else limited_memory()


class AboveLevel(pytest.skip.Exception):
    """A test fails at a level above `--level`."""


class LawStopped(pytest.skip.Exception):
    """Stop a law at once: an example does not end, or failing examples took too long.

    It is a skip, since Hypothesis passes skips through without shrinking.
    """

    def __init__(self, error: BaseException):
        super().__init__()
        self.error = error


@cache
def failure_context(kind: str, edge: str, vacuous: bool) -> type[Exception]:
    """Return one exception class for each kind of fault, edge and vacuity.

    Set as the context of an error it separates failures: Hypothesis compares contexts.
    """
    return type(f"{kind} {edge}{' vacuous' * vacuous}", (Exception,), {})


def faults_of(error: BaseException) -> Iterator[tuple[BaseException, Fault | None]]:
    """Yield each distinct failure of a test, and its fault."""
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from faults_of(part)
    else:
        yield error, getattr(error, "fault", None)
