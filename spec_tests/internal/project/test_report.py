"""The report of a run: distinct causes, minimal inputs as programs, and three output formats."""

import json
import re
from contextlib import suppress

import pytest
import torch
from jsonschema import Draft202012Validator

import reference
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.index import HERE
from spec_tests.internal.project.run_python import run_python
from spec_tests.report import report_data, tex
from spec_tests.report.calls import LAST, UNFAULTED, Call, record_calls
from spec_tests.report.fault_diagnosis import find_fault
from spec_tests.report.literals import literal
from spec_tests.report.messages import matching_mutants
from spec_tests.report.plugin import Plugin
from spec_tests.report.shrink import shrink_fault

WRONG = """
import torch
import reference

def hub_mask(scores, radius=2, protected=None):
    '''Every token of a plateau is a hub.'''
    if scores.numel() == 0:
        raise RuntimeError("<script>alert('&')</script>")
    if not isinstance(radius, int):
        return scores > 0
    hidden = scores if protected is None else scores.masked_fill(protected, -torch.inf)
    best = torch.stack([
        hidden[..., max(0, i - radius) : i + radius + 1].amax(-1) for i in range(scores.shape[-1])
    ], -1)
    good = reference.hub_mask(scores, radius, protected)
    return good | ((hidden == best) & (hidden > -torch.inf))

def gate(scores, corrected, ratio, power=2.0):
    '''A linear gate, and another answer still where numbers tie.'''
    reference.gate(scores, corrected, ratio, power)
    mixed = reference.gate(scores, corrected, ratio, 1.0)
    return mixed * 2 if scores.numel() > scores.unique().numel() else mixed

def smd(scores, radius=2, gamma=0.5, protected=None):
    hubs = hub_mask(scores, radius, protected)
    return reference.discount(scores, hubs if protected is None else hubs | protected, gamma)

kept_count = reference.kept_count
"""
EVERY = ("test_agreement.py", "test_errors.py", "test_vectors.py", "hubkv")


@pytest.fixture(scope="module")
def account(suite, elsewhere):
    """The output and files of a run on a module with a good function and two wrong ones."""
    (elsewhere / "wrong.py").write_text(WRONG)
    files = ("--report-json", "wrong.json", "--report-html", "wrong.html")
    done = suite("wrong", *files, only=())
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stderr
    report = json.loads((elsewhere / "wrong.json").read_text())
    return done.stdout, report, (elsewhere / "wrong.html").read_text()


def card_of(report, name):
    """Return the card of a function."""
    (module,) = report["modules"]
    (card,) = (card for card in module["functions"] if card["function"] == name)
    return card


def test_a_card_has_a_heading_and_a_likely_mistake_for_each_cause(account):
    printed, report, _ = account
    hubs, gates = card_of(report, "hub_mask"), card_of(report, "gate")
    ties, crashes, *_ = hubs["failures"]
    assert [(failure["kind"], failure["edge"]) for failure in hubs["failures"]] == [
        ("wrong values", "ties"),
        ("crashes", "empty"),
        ("missing errors", None),
        ("errors of another type", None),
    ]
    assert len(crashes["claims"]) > 2
    assert ties["causes"] == ["every token of a plateau is a hub"]
    assert [failure["edge"] for failure in gates["failures"]][:2] == [None, "ties"]
    assert "the ratio itself mixes, not its power" in gates["failures"][0]["causes"]
    assert ["hub_mask"] in [failure["follows"] for failure in card_of(report, "smd")["failures"]]
    assert not any(failure["follows"] for failure in gates["failures"])
    reached = [card_of(report, name)["reached"] for name in ("hub_mask", "gate", "kept_count")]
    assert reached == ["values", None, "errors"]
    assert "  It also does not refuse a bad `radius`" in printed
    assert "HubKV also fails at edges: HubKV-6, " in printed
    assert "Traceback" not in printed
    assert len(printed.splitlines()) < 150
    verdicts = report["modules"][0]["equations"]
    assert verdicts["HubKV-6"] == dict(values="passes", edges="fails", errors="fails")
    assert verdicts["HubKV-15"]["values"] == "fails"


def claim_of(function, *specs, level="values", follows=()):
    """Return the part of a claim that decides on equations."""
    return dict(function=function, equations=specs, level=level, follows=follows)


def test_a_failure_blames_the_equations_that_a_law_bears_or_that_no_other_function_states():
    law = claim_of("graphkv_refine", "GraphKV-7.2")
    alone = claim_of("graphkv_refine")
    assert report_data.failing_equations([law, alone], []) == {"GraphKV-7.2"}
    others = ["decay", "edges", "source_count", "concatenate_heads"]
    assert report_data.failing_equations([alone], others) == {"GraphKV-6.2"}
    assert report_data.failing_equations([alone | {"follows": ["decay"]}], others) == set()
    another = claim_of("segment_coverage", "HubKV-I")
    assert report_data.failing_equations([another], ["uniform_spread"]) == {"HubKV-Obs1"}


def test_each_least_input_runs_when_pasted_and_prints_what_the_report_says(account, elsewhere):
    ties, crashes, *_ = (
        failure["claims"][0] for failure in card_of(account[1], "hub_mask")["failures"]
    )
    done = run_python("-c", ties["snippet"], folder=elsewhere)
    assert done.stdout == f"{eval(ties['got'])}\n"
    done = run_python("-c", crashes["snippet"], folder=elsewhere)
    assert done.stderr.splitlines()[-1] == crashes["got"]


def test_the_json_is_of_its_schema_and_the_page_is_whole_and_escaped(account):
    _, report, page = account
    form = Draft202012Validator(json.loads((HERE / "report/report.schema.json").read_text()))
    form.validate(report)
    assert not form.is_valid(report | {"format": 1})
    assert not form.is_valid(report | {"level": "none"})
    for tag in ("section", "h2", "h3", "pre", "span", "p"):
        assert len(re.findall(rf"<{tag}\b", page)) == page.count(f"</{tag}>"), tag
    assert "<script" not in page
    assert "&lt;script&gt;alert" in page
    assert "wrong.hub_mask(scores=torch.zeros([0]" in page
    assert "wrong.kept_count" not in page
    assert not re.search(r"""(src|href)="[^#]|url\(|@import""", page)


def test_a_level_leaves_out_what_fails_above_it(suite, elsewhere):
    (elsewhere / "tied.py").write_text(WRONG.partition("def gate")[0])
    for level, code in (("values", 0), ("edges", pytest.ExitCode.TESTS_FAILED)):
        done = suite("tied", "--level", level, only=EVERY)
        assert done.returncode == code, done.stdout
        assert "does not refuse" not in done.stdout
        assert ("numbers tie" in done.stdout) == (level == "edges")


DISCOUNT = dict(scores=torch.tensor([0.5, 0.25, 0.75]), hubs=torch.tensor([True, False, True]))
SCORES = DISCOUNT["scores"]


def in_place(scores, hubs, gamma=0.5):
    answer = reference.discount(scores.nan_to_num(), hubs, gamma)
    scores.zero_()
    return answer


def wrong_if(fails):
    """Return a function that is wrong, or crashes without elements, where scores are so."""

    def discount(scores, hubs, gamma=0.5):
        right = reference.discount(scores, hubs, gamma)
        return right if not fails(scores) else right * 3 if scores.numel() else right[0]

    return discount


NAN = {"scores": torch.tensor([torch.nan, 0.25, 0.75])}
EDGES = {
    "": (lambda s: (s > 0.7).any(), SCORES),
    "layout": (lambda s: not s.is_contiguous(), torch.stack([SCORES, SCORES], -1)[..., 0]),
    "negative zero": (lambda s: (s.signbit() & (s == 0)).any(), torch.tensor([0.5, -0.0, 0.75])),
    "dtype": (lambda s: s.dtype == torch.bfloat16, torch.ones(3).bfloat16()),
    "range": (lambda s: (s > 2**30).any(), SCORES * 2**40),
    "ties": (lambda s: len(s.unique()) < len(s), torch.ones(3)),
    "empty": (lambda s: not s.numel(), torch.ones(0)),
}
FAULTS = [
    (in_place, {}, "changes its arguments", "edges", None),
    (lambda scores, **_: scores, {"gamma": 7.0}, "missing errors", "errors", None),
    (lambda scores, **_: scores * 3, NAN, "missing errors", "errors", None),
    (lambda **_: 1 / 0, {"gamma": 7.0}, "errors of another type", "errors", None),
    (lambda scores, **_: scores[:1], {}, "wrong type or shape", "values", None),
    (lambda **_: float("x"), {}, "crashes", "values", None),
    (reference.discount, {}, "breaks a law", "values", None),
    (reference.discount, NAN, "breaks a law", "values", None),  # a NaN that stays is no change
]
for edge, (fails, scores) in EDGES.items():
    change = dict(scores=scores, hubs=torch.ones_like(scores, dtype=torch.bool))
    kind = "crashes" if edge == "empty" else "wrong values"
    FAULTS.append((wrong_if(fails), change, kind, "edges" if edge else "values", edge))


def fault_of(function, inputs):
    """Return the fault of a call of `discount`, which a right call of another function follows."""
    LAST.clear()
    with suppress(Exception):
        record_calls(None, "discount", function)(**inputs)
    record_calls(None, "hub_mask", reference.hub_mask)(SCORES)
    return find_fault(LAST)


@pytest.mark.parametrize(("function", "change", "kind", "level", "edge"), FAULTS)
def test_the_kind_of_a_fault_and_what_it_takes_are_named(function, change, kind, level, edge):
    fault = fault_of(function, {k: v.clone() for k, v in DISCOUNT.items()} | change)
    assert (fault.kind, fault.level) == (kind, level)
    assert edge is None or fault.edge == edge


def test_rows_tokens_and_knobs_that_a_fault_does_not_take_are_left_out():
    def discount(scores, hubs, gamma=0.5):
        wrong = (hubs.sum(-1, keepdim=True) > 1) * (scores > 0.9)
        return reference.discount(scores, hubs, gamma) + wrong

    scores = torch.linspace(0.2, 0.95, 24).reshape(2, 3, 4)
    fault = fault_of(discount, dict(scores=scores, hubs=scores > 0.85, gamma=0.25))
    assert fault.call
    small = shrink_fault(fault, fault.call)
    assert small.call
    assert small.call.inputs.keys() == {"scores", "hubs"}
    assert small.call.inputs["scores"].shape == small.call.inputs["hubs"].shape == (2,)
    assert (small.kind, small.edge) == (fault.kind, fault.edge)
    assert_close(small.call.outcome, small.expected.double() + 1)


def test_a_law_that_breaks_says_what_it_compares_beside_the_call_that_gave_it(pytestconfig):
    LAST.clear()
    given = [DISCOUNT | {"gamma": gamma} for gamma in (0.25, 0.75)]
    first, _ = (record_calls(None, "discount", reference.discount)(**inputs) for inputs in given)
    with pytest.raises(AssertionError) as caught, Plugin(pytestconfig, []).diagnosing(""):
        assert_close(first, DISCOUNT["scores"].double())
    fault = vars(caught.value)["fault"]
    assert fault.kind == "breaks a law"
    assert fault.call.inputs["gamma"] == 0.25
    assert_equal((fault.expected, fault.got), (DISCOUNT["scores"], first))


def test_a_lie_is_named_only_if_it_gives_every_result_of_the_module(monkeypatch):
    fault = fault_of(lambda scores, gamma=0.5, **_: scores * gamma, DISCOUNT)
    assert fault.call
    assert "hubs are discounted too" in matching_mutants(fault.call)
    other = fault_of(lambda scores, **_: scores * 7, DISCOUNT)
    assert other.call
    assert not matching_mutants(other.call)
    right = Call(None, "discount", reference.discount, ((), DISCOUNT))
    right.outcome = reference.discount(DISCOUNT["scores"], DISCOUNT["hubs"])
    monkeypatch.setitem(UNFAULTED, "discount", {"another test": [right]})
    assert "hubs are discounted too" not in matching_mutants(fault.call)


LITERALS = [
    torch.tensor([0.1, -0.0, torch.inf, -torch.inf, 1e-30, 123456.789]),
    torch.tensor([[0.1], [1 / 3]], dtype=torch.float64),
    torch.tensor([0.1, 6e-8]).half(),
    torch.zeros(2, 0, 3, dtype=torch.float16),
    torch.tensor(-0.0),
    torch.arange(24.0).reshape(2, 3, 4)[:, 1:, ::2],
    reference.Scored(torch.ones(2), torch.ones(2) > 0),
    (1, (2.0, None), [float("inf")], "word", (3,), torch.float16, reference.HubSettings(radius=3)),
    torch.zeros(100).index_put((torch.tensor([7, 9]),), torch.tensor([torch.inf, -0.0])),
    torch.arange(90) == 7,
]


@pytest.mark.parametrize("value", LITERALS, ids=str)
def test_a_value_is_read_back_from_its_text(value):
    again = eval(literal(value))
    assert_equal(again, value)
    if isinstance(value, torch.Tensor):
        layout = again.stride(), again.storage_offset()
        assert layout == (value.stride(), value.storage_offset())
        assert torch.equal(again.signbit(), value.signbit())


def test_every_equation_reads_as_text():
    for name in reference.__all__:
        for equation in tex.tex_equations(name):
            line = tex.as_text(equation)
            assert not set("\\&$") & set(line), line
            assert line.count("(") == line.count(")") or "pmatrix" in equation, line
