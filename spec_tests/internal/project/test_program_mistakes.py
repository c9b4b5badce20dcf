"""The report on a program in JavaScript with one mistake names that mistake.

The mistakes are those of a reader who knows only the page of a function. Each is a change of
docs/js/kv.js. The suite runs on the functions that it concerns.
"""

import json
import shlex
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from spec_tests.index import ROOT

FUNCTIONS = "const functions = Object.keys(kv).filter((name) => kv[name].signature)"
"""The line of the program that says what it offers."""


class Mistake(NamedTuple):
    """A wrong program, and what the report must say first about it."""

    function: str
    change: dict[str, str]  # new text by old text
    says: str  # the likely cause, what the vector detects, or the claim
    elements: int  # of the shown input, at most
    level: str = "values"


MISTAKES = {
    # HubKV
    "a window without its last token": Mistake(
        "hub_mask",
        {"rivals.slice(start, i + k + 1)": "rivals.slice(start, i + k)"},
        "a window does not contain its last token",
        elements=2,
    ),
    "the last of equals wins": Mistake(
        "hub_mask",
        {"const argmax = (xs) => xs.indexOf(": "const argmax = (xs) => xs.lastIndexOf("},
        "the last of a plateau is the hub",
        elements=2,
        level="edges",
    ),
    "the variance of a sample": Mistake(
        "selectivity",
        {
            "Math.sqrt(mean(raised.map((x) => (x - center) ** 2)))": "Math.sqrt("
            "sum(raised.map((x) => (x - center) ** 2)) / Math.max(1, raised.length - 1))"
        },
        "the sample's deviation, not the population's",
        elements=2,
    ),
    "clipped before the power": Mistake(
        "head_weights",
        {"clamp(power(x, tau), minimum, maximum)": "power(clamp(x, minimum, maximum), tau)"},
        "clipped before the power",
        elements=2,
    ),
    "a gate the wrong way round": Mistake(
        "gate",
        {"(1 - lambda) * s + lambda * u": "lambda * s + (1 - lambda) * u"},
        "the two scores are exchanged in the mixture",
        elements=4,
    ),
    "protected tokens in the statistics": Mistake(
        "hubkv_refine",
        {"selectivity({ scores, protected: aside, epsilon })": "selectivity({ scores, epsilon })"},
        "protected tokens count as scores of 0",
        elements=12,
    ),
    "a share in binary": Mistake(
        "kept_count",
        {"  floor_share(ratio, pool, true),\n": "  Math.floor((1 - ratio) * pool),\n"},
        "the count is computed in binary",
        elements=0,
    ),
    "protected entries beyond the budget": Mistake(
        "retain",
        {"pool.slice(0, B)": "pool.slice(0, B + shielded)"},
        "protected entries are added to the budget",
        elements=4,
    ),
    # GraphKV
    "the token's vector against the source's": Mistake(
        "edges",
        {"[vectors[kind[0]], vectors[kind[1]]]": "[vectors[kind[1]], vectors[kind[0]]]"},
        "the vectors of source and token are exchanged",
        elements=13,
    ),
    "a distance for a similarity": Mistake(
        "edges",
        {"clamp(dot(a, b) / lengths, -1, 1)": "1 - clamp(dot(a, b) / lengths, -1, 1)"},
        "1 minus the cosine, a distance, instead of the cosine",
        elements=9,
    ),
    "a source is its own neighbour": Mistake(
        "neighbours",
        {"j !== i && !P?.[j]": "!P?.[j]"},
        "a source can be its own neighbour",
        elements=6,
    ),
    "only the last source lowers a score": Mistake(
        "decay",
        {"(s, _, loss) => s * (1 - loss)": "(_, before, loss) => before * (1 - loss)"},
        "Algorithm 2 overwrites where Equation 5 multiplies",
        elements=5,
    ),
    "only the last source raises a score": Mistake(
        "enhance",
        {"(s, _, e) => s * (1 + alpha * e)": "(s, before, e) => before * (1 + alpha * e)"},
        "only the last source that reaches a token counts",
        elements=5,
    ),
    "a count to the nearest": Mistake(
        "source_count",
        {
            "floor_share(fraction, keep - window)": "Math.round(fraction * (keep - window))",
        },
        "the share is rounded to the nearest",
        elements=0,
    ),
    "the window is not subtracted from the budget": Mistake(
        "source_count",
        {"floor_share(fraction, keep - window)": "floor_share(fraction, keep)"},
        "the window is not subtracted from the budget",
        elements=0,
    ),
    # HEX
    "query heads dealt in turn": Mistake(
        "attention_weights",
        {"K[Math.floor(h / group)]": "K[h % K.length]"},
        "query head h reads key head h modulo the number of key heads",
        elements=8,
    ),
    "a causal mask from the first key": Mistake(
        "attention_weights",
        {"causal ? tokens - count + t + 1 : tokens": "causal ? t + 1 : tokens"},
        "the first query sees the first key only, however long the cache",
        elements=6,
    ),
    "logits without a scale": Mistake(
        "attention_weights",
        {"scale ?? 1 / Math.sqrt(width)": "scale ?? 1"},
        "logits are not divided by the root of the width",
        elements=12,
    ),
    "a softmax over the queries": Mistake(
        "attention_weights",
        {
            ": softmax(logits)\n": ": logits.map(Math.exp)\n",
            "[...queries.shape.slice(0, -1), tokens], weights)": "[...queries.shape.slice(0, -1), "
            "tokens], known ? weights : weights.map((heads) => heads.map((A) => A.map((row) => "
            "row.map((x, j) => x / sum(A.map((other) => other[j])))))))",
        },
        "the softmax runs over the queries, not over the tokens",
        elements=6,
    ),
    "the mean over heads": Mistake(
        "attention_mass",
        {"sum(A.map((head) => sum(head": "mean(A.map((head) => sum(head"},
        "mass is averaged over the heads",
        elements=9,
    ),
    "a mean over all queries": Mistake(
        "attention_mass",
        {"causal ? Math.min(count, tokens - t) : count": "count"},
        "mass is divided by all queries, including those that do not see the token",
        elements=5,
    ),
    "halves rounded up": Mistake(
        "quantise",
        {
            "round_half_even(near((value - low) / step))": "Math.round(near((value - low) / step))",
        },
        "rounding half up",
        elements=5,
    ),
    "a division by a step of zero": Mistake(
        "quantise",
        {"kept?.[j] || !step ? 0 : coded(value)": "kept?.[j] ? 0 : coded(value)"},
        "elements must be of uint8, got [['nan']",
        elements=8,
    ),
    "one level more": Mistake(
        "quantise",
        {"const top = 2 ** bits - 1\n  const [low": "const top = 2 ** bits\n  const [low"},
        "elements must be in the range of uint8",
        elements=16,
    ),
    "outliers in the range of a group": Mistake(
        "quantise",
        {"const rest = x.filter((_, j) => !kept?.[j])": "const rest = x"},
        "kept entries do not enter the statistics",
        elements=4,
    ),
    "bits from the top of a word": Mistake(
        "pack_bits",
        {"bit << p % 32": "bit << (31 - p % 32)"},
        "a word is filled from its highest bit",
        elements=2,
    ),
    "a window of one less": Mistake(
        "recent_mask",
        {"t >= tokens - recent)),": "t > tokens - recent)),"},
        "the window is one token too short",
        elements=0,
    ),
}


@pytest.fixture
def report(suite, node, tmp_path):
    """Return a function that runs the suite on a program with a mistake, and returns its report."""

    def report_on(mistake: Mistake) -> dict[str, Any]:
        program = (ROOT / "docs/js/program.mjs").read_text()
        assert program.count(FUNCTIONS) == 1
        offered = f"const functions = {json.dumps([mistake.function])}"
        (tmp_path / "program.mjs").write_text(program.replace(FUNCTIONS, offered))
        text = (ROOT / "docs/js/kv.js").read_text()
        for old, new in mistake.change.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        (tmp_path / "kv.js").write_text(text)
        (tmp_path / "package.json").write_text('{"type": "module"}')
        command = shlex.join([node, str(tmp_path / "program.mjs")])
        file = tmp_path / "report.json"
        words = ("--command", command, "--examples", "5", "--report-json", str(file))
        done = suite(*words, "-p", "no:cacheprovider", only=())
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout + done.stderr
        return json.loads(file.read_text())

    return report_on


ASKED = list(MISTAKES)[:: 1 if settings.get_current_profile_name() == "thorough" else 4]
"""Every fourth mistake: two seconds of a processor each; all of them in a thorough run."""


@pytest.mark.parametrize("mistake", [MISTAKES[name] for name in ASKED], ids=ASKED)
def test_the_card_names_the_mistake_first(report, mistake):
    (module,) = report(mistake)["modules"]
    (card,) = (card for card in module["functions"] if card["failures"])
    assert card["function"] == mistake.function
    failure = card["failures"][0]
    claim = failure["claims"][0]
    assert failure["level"] == mistake.level
    said = (*failure["causes"], claim["hunts"], claim["claim"], claim["got"])
    assert any(mistake.says in text for text in said), said
    assert count_elements(claim["snippet"]) <= mistake.elements, claim["snippet"]


def count_elements(snippet: str) -> int:
    """Return the number of elements of the tensors in the call that a line for a shell sends."""

    def count(value: Any) -> int:
        if isinstance(value, dict | list):
            return sum(map(count, value.values() if isinstance(value, dict) else value))
        return 1

    inputs = json.loads(shlex.split(snippet)[2])["inputs"]
    return sum(count(value) for value in inputs.values() if isinstance(value, dict))
