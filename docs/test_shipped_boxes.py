"""What the docs say of the shipped models' runs is what the runs show."""

import json
import re
import sys
from base64 import b64decode
from copy import deepcopy
from io import BytesIO
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
DOCS = Path(__file__).parent
sys.path.append(str(DOCS))  # as `python docs/figures.py` has it

import notebooks  # noqa: E402
import one_prompt  # noqa: E402
import shipped_boxes  # noqa: E402
from matplotlib.image import imread  # noqa: E402

PAGES = [(name, page) for name, (_, pages) in shipped_boxes.BOXES.items() for page in pages]


@pytest.mark.parametrize(("name", "page"), PAGES)
def test_a_box_stands_between_the_examples_and_the_code_of_its_page(name, page):
    text = (DOCS / f"{page}.md").read_text()
    line = f'\n--8<-- "figures/works_{name}.txt"\n'
    assert text.count(line) == 1
    before, after = text.split(line)
    assert "\n::: " not in before
    assert after == "" or after.startswith("\n::: ")


def test_a_box_is_a_paragraph_in_a_notebook():
    cell = notebooks.prose(shipped_boxes.box("It [works](a.md).", "hubkv/walk"))
    said = "It works. The run is of the shipped model of words: 2.9 million parameters, "
    assert cell["source"].startswith(f"**Does it work here?** {said}")


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
        ("kcvt", shipped_boxes.STORES, "kcvt-3", None, "=="),
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


def test_the_page_of_one_prompt_says_what_was_measured():
    found = json.loads(one_prompt.FIGURES.read_text())
    rows = {row["system"]: row for row in found["rows"]}
    right = {name: one_prompt.answers_right(found, row) for name, row in rows.items()}
    for name, answer in right.items():
        base, _, refinement = name.partition("+")
        assert answer is right[base], f"{refinement} changes an answer, and the page denies it"
    for name in ("snapkv", "pyramidkv", "cake"):
        kept = rows[name]["kept"]
        assert sum(kept[-found["tokens"] // 4 :]) > sum(kept) / 2
    for name in ("kvzip", "fastkvzip"):
        kept = rows[name]["kept"]
        assert sum(kept[-found["tokens"] // 4 :]) < sum(kept) / 2
        assert max(kept[slice(*found["fact"])]) < 0.5
    assert "three heads of ten" in (DOCS / "one_prompt.md").read_text()
    assert one_prompt.MOST == 0.3


def test_the_answers_are_those_of_the_front_page():
    found = json.loads(one_prompt.FIGURES.read_text())
    page = (DOCS / "index.md").read_text()
    for system in ("full", "kvzip+hubkv", "snapkv", "hex-4"):
        row = next(row for row in found["rows"] if row["system"] == system)
        assert f"| `{row['answer']}` | {row['bytes']:,} |" in page


def test_the_picture_of_one_prompt_is_what_its_script_draws():
    root = DOCS.parent
    pinned = re.search(r"^matplotlib==(.*)$", (root / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    if matplotlib.__version__ != pinned[1]:
        pytest.skip("another matplotlib draws the same picture in other words")
    drawn = one_prompt.drawing(json.loads(one_prompt.FIGURES.read_text()))
    shown = one_prompt.PICTURE.read_text()
    (text, strips), (other, others) = map(parts_of_a_picture, (drawn, shown))
    assert text == other
    for strip, another in zip(strips, others, strict=True):
        assert (strip == another).all()


def parts_of_a_picture(svg):
    """Return an SVG without the images in it, and the pixels of these."""
    image = r"data:image/png;base64,([^\"]*)"
    pixels = [imread(BytesIO(b64decode(one))) for one in re.findall(image, svg)]
    return re.sub(image, "", svg), pixels
