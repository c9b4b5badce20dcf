"""What a run says: causes told apart, the least input as a program, one account in three forms."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
import torch

import reference
from spec_tests import needs
from spec_tests.accuracy import assert_equal
from spec_tests.index import HERE, ROOT
from spec_tests.project.schemas import faults
from spec_tests.report import cards, tex
from spec_tests.report.calls import LAST, recorded
from spec_tests.report.claims import lies_like
from spec_tests.report.faults import diagnosed
from spec_tests.report.literals import literal
from spec_tests.report.plugin import write_whole

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
def told(suite, elsewhere):
    """One run on a module with a good function and two wrong ones: what it printed and wrote."""
    (elsewhere / "wrong.py").write_text(WRONG)
    files = ("--report-json", "wrong.json", "--report-html", "wrong.html")
    done = suite("wrong", *files, only=(*EVERY, "retain"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stderr
    report = json.loads((elsewhere / "wrong.json").read_text())
    return done.stdout, report, (elsewhere / "wrong.html").read_text()


def card_of(report, name):
    """Return the card of a function."""
    (module,) = report["modules"]
    (card,) = (card for card in module["functions"] if card["function"] == name)
    return card


def test_a_heading_is_a_cause(told):
    card = card_of(told[1], "hub_mask")
    found = {failure["heading"]: failure for failure in card["failures"]}
    assert found.keys() == {
        "wrong values where numbers tie",
        "crashes on empty input",
        "missing errors",
        "errors of another type",
    }
    assert len(found["crashes on empty input"]["claims"]) > 2
    assert card["reached"] == "values"
    assert card_of(told[1], "kept_count")["reached"] == "errors"


def test_a_cause_is_named_by_the_example_that_hunts_it_and_by_the_lie_that_answers_alike(told):
    ties, *_ = card_of(told[1], "hub_mask")["failures"]
    assert "s == maxpool(s), which calls every tied token a hub" in ties["causes"]
    assert "every token of a plateau is a hub" in ties["causes"]
    linear, *_ = card_of(told[1], "gate")["failures"]
    assert "the ratio itself mixes, not its power" in linear["causes"]


def test_an_edge_does_not_hide_that_ordinary_input_fails(told):
    card = card_of(told[1], "gate")
    assert [failure["edge"] for failure in card["failures"]][:2] == [None, "ties"]
    assert card["reached"] is None


def test_each_least_input_runs_when_pasted_and_prints_what_the_report_says(told, elsewhere):
    place = {"cwd": elsewhere, "env": {"PYTHONPATH": str(ROOT)}}
    ties, crashes, *_ = card_of(told[1], "hub_mask")["failures"]
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


def test_the_report_says_the_equation_as_printed_its_section_and_the_version(told):
    card = card_of(told[1], "gate")
    assert card["printed"] == [r"\lambda = r^p, \qquad z_i = (1 - \lambda)\, s_i + \lambda\, u_i"]
    assert {"id": "HubKV-10", "where": "HubKV §3.3"}.items() <= card["equations"][0].items()
    assert told[1]["suite"] == {"name": "kvspec", "version": cards.suite_version()}
    for form in (told[0], told[2]):
        assert f"kvspec {cards.suite_version()}" in form
    assert "λ = r^p,  z_i = (1 − λ) s_i + λ u_i" in told[0]


def test_an_equation_fails_with_agreement_alone(suite, elsewhere):
    text = "import torch, reference as r\ndef discount(scores, hubs, gamma=0.5):\n"
    text += "    return r.discount(scores, hubs, gamma**2)\n"
    (elsewhere / "squared.py").write_text(text)
    done = suite("squared", "-k", "discount", only=("test_agreement.py", "hubkv"))
    assert "HubKV: HubKV-7 fails; " in done.stdout


ODD = """
import torch

class Odd:
    def __repr__(self):
        raise RuntimeError("no words")

def kept_count(pool, ratio):
    return Odd()

def gate(scores, corrected, ratio, power=2.0):
    return corrected + torch.randn(())
"""


def test_an_answer_without_words_or_of_chance_is_a_failure_like_another(suite, elsewhere):
    (elsewhere / "odd.py").write_text(ODD)
    done = suite("odd", "-k", "gate or kept_count", only=(*EVERY, "retain"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stderr
    assert "INTERNALERROR" not in done.stdout
    for name in ("kept_count", "gate"):
        assert f"{name} fails" in done.stdout


def test_the_first_failure_of_a_run_is_the_easiest_to_read(suite):
    done = suite("theirs:wrong", "-x", only=EVERY)
    assert "worked example: " in done.stdout
    assert "1 failed" in done.stdout
    assert "test_laws" not in done.stdout


def test_passes_are_counted_of_what_is_offered(told):
    assert "HubKV-6 fails" in told[0]
    assert "HubKV-15 fails" in told[0]
    offered = [i for i in told[1]["modules"][0]["equations"] if i.startswith("HubKV-")]
    assert f"of {len(offered)} equations offered pass" in told[0]
    assert "kept_count  passes   passes   passes" in told[0]


def test_tracebacks_are_not_printed(told):
    assert "Traceback" not in told[0]
    assert len(told[0].splitlines()) < 150


def test_the_json_is_of_the_form_that_its_schema_says(told):
    schema = json.loads((HERE / "report/report.schema.json").read_text())
    assert not [*faults(told[1], schema, schema)]
    assert [*faults(told[1] | {"format": 2}, schema, schema)]
    assert [*faults(told[1] | {"level": "none"}, schema, schema)]


class Page(HTMLParser):
    """Which tags a page opens and never closes, and what it asks others for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.outside: list[str] = []

    def handle_starttag(self, tag, attrs):
        """Note what a tag opens, and where it leads."""
        self.seen.add(tag)
        self.open += [] if tag in ("meta", "link", "br") else [tag]
        self.outside += [v for k, v in attrs if k in ("src", "href") and v and v[0] != "#"]

    def handle_endtag(self, tag):
        """Only the last one opened may close."""
        assert self.open.pop() == tag


def test_the_page_is_whole_and_escaped_and_needs_nothing_else(told):
    page = Page()
    page.feed(told[2])
    assert not page.open
    assert not page.outside
    assert "script" not in page.seen
    assert "&lt;script&gt;alert" in told[2]
    assert "url(" not in told[2]
    assert "@import" not in told[2]
    assert {"math", "mfrac"} & page.seen
    assert "prefers-color-scheme: dark" in told[2]


def test_a_report_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "report.json"
    file.write_text("whole")
    with pytest.raises(UnicodeEncodeError):
        write_whole(file, "half \ud800")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["whole"]
    write_whole(file, "new")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("level", "code"),
    [("values", pytest.ExitCode.OK), ("edges", pytest.ExitCode.TESTS_FAILED)],
)
def test_a_level_leaves_out_what_fails_above_it(suite, elsewhere, level, code):
    (elsewhere / "tied.py").write_text(WRONG.partition("def gate")[0])
    done = suite("tied", "--level", level, only=EVERY)
    assert done.returncode == code, done.stdout
    assert "missing errors" not in done.stdout.lower()
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
@pytest.mark.parametrize("crash", [True, False])
def test_the_property_of_the_input_that_a_fault_takes_is_named(edge, crash):
    fails, inputs = FAULTS[edge]

    def discount(scores, hubs, gamma=0.5):
        if not fails(scores):
            return reference.discount(scores, hubs, gamma)
        if crash or not scores.numel():
            raise RuntimeError("out of luck")
        return reference.discount(scores, hubs, gamma) * 3

    fault = fault_of("discount", discount, inputs)
    assert fault.edge == edge
    assert fault.level == ("edges" if edge else "values")
    assert fault.kind == ("crashes" if crash or edge == "empty" else "wrong values")


def fault_of(name, function, inputs):
    """Return the fault of one call."""
    LAST.clear()
    try:
        recorded(None, name, function)(**inputs)
    except Exception:
        assert LAST
    return diagnosed(LAST)


def in_place(scores, hubs, gamma=0.5):
    answer = reference.discount(scores, hubs, gamma)
    scores.zero_()
    return answer


@pytest.mark.parametrize(
    ("function", "change", "kind", "level"),
    [
        (in_place, {}, "changes its arguments", "edges"),
        (lambda scores, **_: scores, {"gamma": 7.0}, "missing errors", "errors"),
        (lambda **_: 1 / 0, {"gamma": 7.0}, "errors of another type", "errors"),
        (lambda scores, **_: scores[:1], {}, "wrong type or shape", "values"),
        (lambda **_: float("x"), {}, "crashes", "values"),
        (reference.discount, {}, "breaks a law", "values"),
    ],
)
def test_kinds_of_fault_are_told_apart(function, change, kind, level):
    inputs = {k: v.clone() for k, v in DISCOUNT.items()} | change
    fault = fault_of("discount", function, inputs)
    assert (fault.kind, fault.level) == (kind, level)


def test_the_first_call_that_is_wrong_is_at_fault_not_the_last():
    LAST.clear()
    recorded(None, "discount", lambda scores, **_: scores * 3)(**DISCOUNT)
    recorded(None, "hub_mask", reference.hub_mask)(DISCOUNT["scores"])
    fault = diagnosed(LAST)
    assert fault.call
    assert fault.call.name == "discount"


def test_a_lie_is_named_only_if_it_answers_alike():
    one = fault_of("discount", lambda scores, gamma=0.5, **_: scores * gamma, DISCOUNT)
    assert one.call
    assert "hubs are discounted too" in lies_like(one.call)
    other = fault_of("discount", lambda scores, **_: scores * 7, DISCOUNT)
    assert other.call
    assert not lies_like(other.call)


VALUES = [
    torch.tensor([0.1, -0.0, torch.inf, -torch.inf, 1e-30, 123456.789]),
    torch.tensor([[0.1], [1 / 3]], dtype=torch.float64),
    torch.tensor([0.1, 3.0]).bfloat16(),
    torch.tensor([0.1, 6e-8]).half(),
    torch.zeros(2, 0, 3, dtype=torch.float16),
    torch.tensor(7),
    torch.tensor([[True], [False]]),
    torch.tensor([1, 2], dtype=torch.uint8),
    reference.HubSettings(radius=3),
    reference.Scored(torch.ones(2), torch.ones(2) > 0),
    (1, (2.0, None), [float("inf")], "word", (3,)),
    torch.float16,
]


@pytest.mark.parametrize("value", VALUES, ids=str)
def test_a_value_is_read_back_from_its_text(value):
    assert_equal(eval(literal(value)), value)


def test_the_text_of_a_strided_tensor_keeps_its_strides():
    tensor = torch.arange(24.0).reshape(2, 3, 4)[:, 1:, ::2]
    again = eval(literal(tensor))
    assert_equal(again, tensor)
    assert (again.stride(), again.storage_offset()) == (tensor.stride(), tensor.storage_offset())


ARITY = dict(msub=2, msup=2, msubsup=3, munder=2, mover=2, munderover=3, mfrac=2)


def test_every_equation_reads_as_text_and_as_mathml():
    for name in reference.__all__:
        for equation in tex.printed(name):
            line = tex.as_text(equation)
            assert not set("\\&$") & set(line), line
            assert line.count("(") == line.count(")") or "pmatrix" in equation, line
            for part in ElementTree.fromstring(tex.as_mathml(equation)).iter():
                assert len(part) == ARITY.get(part.tag, len(part)), equation


def test_what_is_not_collected_asks_for_nothing_that_is_offered():
    for file in HERE.rglob("test_*.py"):
        if "getattr(impl" not in needs.text(file):
            for name in needs.functions(file):
                assert needs.asked(file, name) <= needs.mentioned(file), (file, name)


def test_lines_of_a_page_stay_whole_in_the_terminal(told):
    assert all(len(line) <= 400 for line in told[0].splitlines())
