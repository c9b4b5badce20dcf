"""The report of a run: distinct causes, minimal inputs as programs, and three output formats."""

import json
import re
import subprocess
import sys
from contextlib import suppress

import pytest
import torch
from jsonschema import Draft202012Validator

import reference
from spec_tests.accuracy import are_equal, assert_close, assert_equal
from spec_tests.index import HERE, ROOT
from spec_tests.report import report_data, tex
from spec_tests.report.calls import LAST, UNFAULTED, Call, record_calls
from spec_tests.report.fault_diagnosis import find_fault
from spec_tests.report.literals import first_difference, literal, result_as_text
from spec_tests.report.messages import explaining_steps, matching_mutants
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
    reached = [card_of(report, name)["reached"] for name in ("hub_mask", "gate", "kept_count")]
    assert reached == ["values", None, "errors"]
    assert "  It also does not refuse a bad `radius`" in printed
    assert "HubKV also fails at edges: HubKV-6, " in printed
    assert "Traceback" not in printed
    assert len(printed.splitlines()) < 150
    told = report["modules"][0]["equations"]
    assert told["HubKV-6"] == dict(values="passes", edges="fails", errors="fails")
    assert told["HubKV-15"]["values"] == "fails"


def test_an_answer_follows_only_if_the_specification_gives_it_with_theirs():
    class Theirs:
        ours, offers = True, {"hub_mask", "discount"}.issuperset
        hub_mask = staticmethod(lambda scores, *_: scores < 0)
        discount = staticmethod(reference.discount)

    scores = torch.tensor([0.5, 0.25, 0.75])
    call = Call(Theirs, "smd", reference.smd, ((scores,), {}))
    call.outcome = scores / 2
    assert explaining_steps(call) == ["hub_mask"]
    call.outcome = scores / 4
    assert not explaining_steps(call)


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
    place = {"cwd": elsewhere, "env": {"PYTHONPATH": str(ROOT)}}
    ties, crashes, *_ = card_of(account[1], "hub_mask")["failures"]
    run = [sys.executable, "-c"]
    pasted = subprocess.run(
        [*run, ties["claims"][0]["snippet"]], **place, capture_output=True, text=True, check=True
    )
    expected = eval(ties["claims"][0]["got"])
    assert pasted.stdout == f"{expected}\n"
    crashed = subprocess.run(
        [*run, crashes["claims"][0]["snippet"]], **place, capture_output=True, text=True
    )
    assert crashed.stderr.splitlines()[-1] == crashes["claims"][0]["got"]


def test_the_first_failure_of_a_run_is_the_easiest_to_read(suite):
    done = suite("theirs:wrong", "-x", only=EVERY)
    assert "vector: " in done.stdout
    assert "1 failed" in done.stdout
    assert "test_laws" not in done.stdout


def test_the_json_is_of_the_form_that_its_schema_says(account):
    schema = json.loads((HERE / "report/report.schema.json").read_text())
    form = Draft202012Validator(schema)
    form.validate(account[1])
    assert not form.is_valid(account[1] | {"format": 1})
    assert not form.is_valid(account[1] | {"level": "none"})


def test_the_page_is_whole_and_escaped_and_needs_nothing_else(account):
    page = account[2]
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


def spread(tensor):
    """Return a tensor with gaps in memory."""
    return torch.stack([tensor, tensor], -1)[..., 0]


FAULTS = {
    "layout": (lambda s: not s.is_contiguous(), DISCOUNT | {"scores": spread(DISCOUNT["scores"])}),
    "negative zero": (
        lambda s: bool((s.signbit() & (s == 0)).any()),
        DISCOUNT | {"scores": torch.tensor([0.5, -0.0, 0.75])},
    ),
    "dtype": (lambda s: s.dtype == torch.bfloat16, DISCOUNT | {"scores": torch.ones(3).bfloat16()}),
    "range": (lambda s: bool((s > 2**30).any()), DISCOUNT | {"scores": DISCOUNT["scores"] * 2**40}),
    "ties": (lambda s: len(s.unique()) < len(s), DISCOUNT | {"scores": torch.ones(3)}),
    "empty": (lambda s: not s.numel(), dict(scores=torch.ones(0), hubs=torch.ones(0) > 0)),
    "": (lambda s: bool((s > 0.7).any()), DISCOUNT),
}


@pytest.mark.parametrize("edge", FAULTS)
def test_the_property_of_the_input_that_a_fault_takes_is_named(edge):
    fails, inputs = FAULTS[edge]

    def discount(scores, hubs, gamma=0.5):
        right = reference.discount(scores, hubs, gamma)
        return right if not fails(scores) else right * 3 if scores.numel() else right[0]

    fault = fault_of("discount", discount, inputs)
    assert fault.edge == edge
    assert fault.level == ("edges" if edge else "values")
    assert fault.kind == ("crashes" if edge == "empty" else "wrong values")


def fault_of(name, function, inputs):
    """Return the fault of one call."""
    LAST.clear()
    with suppress(Exception):
        record_calls(None, name, function)(**inputs)
    return find_fault(LAST)


def test_rows_tokens_and_knobs_that_a_fault_does_not_take_are_left_out():
    def discount(scores, hubs, gamma=0.5):
        wrong = (hubs.sum(-1, keepdim=True) > 1) * (scores > 0.9)
        return reference.discount(scores, hubs, gamma) + wrong

    scores = torch.linspace(0.2, 0.95, 24).reshape(2, 3, 4)
    fault = fault_of("discount", discount, dict(scores=scores, hubs=scores > 0.85, gamma=0.25))
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


def test_of_a_large_result_the_element_with_the_largest_difference_is_shown():
    expected = torch.linspace(0.1, 0.2, 60, dtype=torch.float64)
    actual = expected.index_fill(0, torch.tensor(59), 7)
    assert first_difference([1, expected], [1, actual], are_equal) == ("[1][59]", expected[59], 7)
    actual = (torch.zeros(120) + 1e-7).index_fill(0, torch.tensor(42), -torch.inf).view(3, 40)
    assert first_difference(torch.zeros(3, 40), actual, are_equal) == ("[1, 2]", 0, -torch.inf)


def in_place(scores, hubs, gamma=0.5):
    answer = reference.discount(scores.nan_to_num(), hubs, gamma)
    scores.zero_()
    return answer


def of_float64(scores, **_):
    return scores * 3 if scores.dtype == torch.float64 else pytest.skip("not supported")


NAN = {"scores": torch.tensor([torch.nan, 0.25, 0.75])}


@pytest.mark.parametrize(
    ("function", "change", "kind", "level"),
    [
        (in_place, {}, "changes its arguments", "edges"),
        (lambda scores, **_: scores, {"gamma": 7.0}, "missing errors", "errors"),
        (lambda scores, **_: scores * 3, NAN, "missing errors", "errors"),
        (lambda **_: 1 / 0, {"gamma": 7.0}, "errors of another type", "errors"),
        (lambda scores, **_: scores[:1], {}, "wrong type or shape", "values"),
        (lambda **_: float("x"), {}, "crashes", "values"),
        (reference.discount, {}, "breaks a law", "values"),
        (reference.discount, NAN, "breaks a law", "values"),  # a NaN that stays is no change
        (of_float64, {"scores": DISCOUNT["scores"].double()}, "wrong values", "edges"),
    ],
)
def test_kinds_of_fault_are_told_apart(function, change, kind, level):
    inputs = {k: v.clone() for k, v in DISCOUNT.items()} | change
    fault = fault_of("discount", function, inputs)
    assert (fault.kind, fault.level) == (kind, level)


def test_the_first_call_that_is_wrong_is_at_fault_not_the_last():
    LAST.clear()
    record_calls(None, "discount", lambda scores, **_: scores * 3)(**DISCOUNT)
    record_calls(None, "hub_mask", reference.hub_mask)(DISCOUNT["scores"])
    fault = find_fault(LAST)
    assert fault.call
    assert fault.call.name == "discount"


def test_a_lie_is_named_only_if_it_gives_every_result_of_the_module(monkeypatch):
    one = fault_of("discount", lambda scores, gamma=0.5, **_: scores * gamma, DISCOUNT)
    assert one.call
    assert "hubs are discounted too" in matching_mutants(one.call)
    other = fault_of("discount", lambda scores, **_: scores * 7, DISCOUNT)
    assert other.call
    assert not matching_mutants(other.call)
    right = Call(None, "discount", reference.discount, ((), DISCOUNT))
    right.outcome = reference.discount(DISCOUNT["scores"], DISCOUNT["hubs"])
    monkeypatch.setitem(UNFAULTED, "discount", {"another test": [right]})
    assert "hubs are discounted too" not in matching_mutants(one.call)


VALUES = [
    torch.tensor([0.1, -0.0, torch.inf, -torch.inf, 1e-30, 123456.789]),
    torch.tensor([[0.1], [1 / 3]], dtype=torch.float64),
    torch.tensor([0.1, 6e-8]).half(),
    torch.zeros(2, 0, 3, dtype=torch.float16),
    torch.tensor(7),
    torch.tensor([1, 2], dtype=torch.uint8),
    reference.HubSettings(radius=3),
    reference.Scored(torch.ones(2), torch.ones(2) > 0),
    (1, (2.0, None), [float("inf")], "word", (3,)),
    torch.float16,
    torch.full((3, 40), -0.0),
    torch.zeros(100).index_put((torch.tensor([7, 9]),), torch.tensor([torch.inf, -0.0])),
    torch.arange(90) == 7,
    torch.arange(90.0) % 2,
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_is_read_back_from_its_text(value):
    assert_equal(eval(literal(value)), value)


def test_the_text_of_a_value_keeps_signs_and_strides_and_is_cut_if_long():
    assert literal(torch.tensor(-0.0)) == "torch.tensor(-0.)"
    assert len(result_as_text("0.5" * 1000)) < 320
    tensor = torch.arange(24.0).reshape(2, 3, 4)[:, 1:, ::2]
    again = eval(literal(tensor))
    assert_equal(again, tensor)
    assert (again.stride(), again.storage_offset()) == (tensor.stride(), tensor.storage_offset())


def test_every_equation_reads_as_text():
    for name in reference.__all__:
        for equation in tex.tex_equations(name):
            line = tex.as_text(equation)
            assert not set("\\&$") & set(line), line
            assert line.count("(") == line.count(")") or "pmatrix" in equation, line
