"""What the benchmarks race against does the same work, and pages say what files do."""

import json
import re

import pytest

import optimized
from optimized.bench import report
from optimized.bench.bench_snapkv import KEEP, TOKENS, layer, scores, usual_scores
from spec_tests.accuracy import assert_optimal
from spec_tests.index import ROOT

HELD = json.loads(report.PREDICTED.read_text())
PAGE = ROOT / "docs/performance.md"


@pytest.mark.parametrize("tokens", TOKENS[:2])
def test_the_usual_snapkv_ranks_as_ours_but_for_rounding(tokens):
    x = layer(tokens)
    assert_optimal(optimized.retain(scores(**x), keep=KEEP), usual_scores(**x))


def test_predictions_on_file_are_of_the_gates_there_are():
    pytest.importorskip("triton")
    from optimized.bench.gates import GATES

    gates = [
        (g.name, g.shape, *(float(x) if x else None for x in (g.goal, g.paper))) for g in GATES
    ]
    held = [
        tuple(row[name] for name in ("operation", "shape", "goal", "paper")) for row in HELD["rows"]
    ]
    assert held == gates, "run `python -m optimized.bench aot --write`"


def test_the_page_says_what_the_predictions_on_file_say():
    head, _, *lines = [line.split(" | ") for line in shown() if line.startswith("|")]
    assert "predicted" in head[2]
    assert "predicted" in head[4]
    for line, row in zip(lines, HELD["rows"], strict=True):
        operation, shape, first, first_bound, second, second_bound, goal, ratio, paper = line
        assert (operation.removeprefix("| "), shape) == (row["operation"], row["shape"])
        times = {"H100": dict(us=float(first), bound=first_bound)}
        times["H200"] = dict(us=float(second), bound=second_bound)
        assert times == row["predicted"]
        assert [float(x) if x else None for x in (goal, paper.removesuffix(" |"))] == [
            row["goal"],
            row["paper"],
        ]
        missed = bool(goal) and float(first) > float(goal)
        assert ("missed" in ratio) == missed


def test_the_figure_tells_those_who_cannot_see_it_which_goals_are_missed():
    words = shown()[0]
    missed = [r for r in HELD["rows"] if r["goal"] and r["predicted"]["H100"]["us"] > r["goal"]]
    factors = [f"{row['predicted']['H100']['us'] / row['goal']:.2f}" for row in missed]
    assert re.findall(r" by (\d+\.\d\d) ×", words) == factors
    assert f"{len(missed)} of " in words


def test_a_prediction_is_never_shown_as_measured():
    text = report.predictions()
    assert text.count("measured") == text.count("not measured") + text.count("Papers measured")
    assert '--8<-- "figures/predicted.txt"' in PAGE.read_text()


def shown() -> list[str]:
    """What the page shows of predictions, line by line."""
    return report.predictions().splitlines()
