"""The boxes "Does it work here?" stand on their pages, and fail where the run says otherwise."""

import sys
from copy import deepcopy
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
DOCS = Path(__file__).parent
sys.path.append(str(DOCS))  # as `python docs/figures.py` has it

import shipped_boxes  # noqa: E402

PAGES = [(name, page) for name, (_, pages) in shipped_boxes.BOXES.items() for page in pages]


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_a_box_stands_between_the_examples_and_the_code_of_its_page(name, page):
    text = (DOCS / f"{page}.md").read_text()
    line = f'\n--8<-- "figures/works_{name}.txt"\n'
    assert text.count(line) == 1
    before, after = text.split(line)
    assert "\n::: " not in before
    assert after == "" or after.startswith("\n::: ")


def test_each_box_leads_to_a_section_of_the_results():
    headings = [
        line.lstrip("# ").lower().replace(" ", "-")
        for line in (DOCS / "results.md").read_text().splitlines()
        if line.startswith("#")
    ]
    assert set(shipped_boxes.SECTIONS.values()) <= set(headings)


def test_each_chart_stands_on_the_page_of_results():
    text = (DOCS / "results.md").read_text()
    for name in shipped_boxes.CHARTS:
        assert text.count(f'\n--8<-- "figures/{name}.txt"\n') == 1


def test_a_box_says_the_numbers_of_the_run():
    rows = shipped_boxes.run().rows
    base, ours = (rows[name, 0.95]["needle_accuracy"] for name in ("kvzip", "kvzip+hubkv"))
    assert f"**loses {100 * (base - ours):.0f} points**" in shipped_boxes.hubkv()
    assert f"from {100 * base:.0f} % to {100 * ours:.0f} %" in shipped_boxes.hubkv()


@pytest.mark.parametrize(
    ("name", "claim", "system", "ratio", "signs"),
    [
        ("hubkv", shipped_boxes.HUBKV, "kvzip+hubkv", 0.95, "=="),
        ("hubkv", shipped_boxes.HUBKV, "kvzip+hubkv", 0.9, "=-"),
        ("graphkv", shipped_boxes.GRAPHKV, "snapkv+graphkv", 0.9, "=+"),
        ("decay", shipped_boxes.GRAPHKV, "snapkv+graphkv", 0.95, "=+"),
        ("hex", shipped_boxes.STORES, "hex-3", None, "=="),
        ("kcvt", shipped_boxes.STORES, "kcvt-3", None, "--"),
    ],
)
def test_a_box_is_refused_where_the_run_says_otherwise(
    monkeypatch, name, claim, system, ratio, signs
):
    other = shipped_boxes.Run(deepcopy(shipped_boxes.run().figures))
    other.verdicts[claim, system, ratio]["signs"] = signs
    letter = shipped_boxes.run(reading="letter")
    monkeypatch.setattr(
        shipped_boxes, "run", lambda _="words", reading="": letter if reading else other
    )
    told, _ = shipped_boxes.BOXES[name]
    with pytest.raises(ValueError, match="no longer shows"):
        told()


def test_what_a_scorer_is_said_to_do_follows_the_verdict(monkeypatch):
    other = shipped_boxes.Run(deepcopy(shipped_boxes.run().figures))
    monkeypatch.setattr(shipped_boxes, "run", lambda: other)
    told, _ = shipped_boxes.BOXES["snapkv"]
    before = told()
    other.verdicts[shipped_boxes.CHANCE, "snapkv", 0.5]["signs"] = "++"
    assert "**fewer than** a random choice" in before
    assert "**fewer than** a random choice" not in told()
