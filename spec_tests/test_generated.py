"""Generated vectors and traces: results of the reference on fixed inputs (`spec_tests.vectors`)."""

import pytest

from spec_tests.index import source_equations
from spec_tests.program import NotSupported
from spec_tests.vectors.judge import (
    generated_lines,
    generated_vectors,
    judge_trace,
    judge_vector,
    traces,
)

spec = pytest.mark.spec
FUNCTIONS = [pytest.param(name, marks=spec(*source_equations(name))) for name in generated_lines()]
TRACES = [
    pytest.param(tuple(case["functions"]), case, id=case["id"], marks=spec(*case["spec"]))
    for case in traces()
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_the_results_of_the_generated_vectors(impl, name, record_property):
    vectors, reasons = generated_vectors(name), list[str]()
    for vector in vectors:
        try:
            judge_vector(impl, vector)
        except NotSupported as why:
            reasons.append(str(why))
    if len(reasons) == len(vectors):
        raise NotSupported(reasons[0])
    if reasons:  # perhaps all those of one of the equations
        record_property("unsupported", True)


@pytest.mark.parametrize(("names", "case"), TRACES)
def test_has_the_states_of_the_trace(impl, names, case):  # noqa: ARG001
    judge_trace(impl, case)
