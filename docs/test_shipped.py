"""What the docs say of the shipped models' runs is what the runs show.

A paragraph with numbers of a run is followed by a comment. Each of its lines is a quotation of the
paragraph and, after an equals sign, where docs/shipped has the numbers in it: a file, then keys of
dictionaries, places in lists, or the system and ratio of a row.
"""

import json
import re
import sys
from base64 import b64decode
from io import BytesIO
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("transformers")
DOCS = Path(__file__).parent
sys.path.append(str(DOCS))  # as `python docs/figures.py` has it

import first_picture  # noqa: E402
import one_prompt  # noqa: E402
from matplotlib.image import imread  # noqa: E402
from shipped_tables import CLAIMS, SURE, hidden, read, widen  # noqa: E402

COMMENT = re.compile(r"^<!-- numbers of docs/shipped\n(.*?)^-->$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"([-+−]?) ?(\d+(?:\.(\d+))?)")
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if COMMENT.search(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_a_page_quotes_the_numbers_of_the_runs(page):
    text = page.read_text()
    for comment in COMMENT.finditer(text):
        paragraph = " ".join(text[: comment.start()].rstrip().rpartition("\n\n")[2].split())
        for line in comment[1].splitlines():
            quoted, place = line.split(" = ")
            assert quoted in paragraph
            assert_shown(quoted, place)


def assert_shown(quoted, place):
    """Compare the numbers of a quotation, and whether they are called significant, with a run."""
    file, *steps = place.split(" / ")
    parent = node = read(*file.split("/"))
    for step in steps:
        parent, node = node, step_into(node, step)
    values = node if isinstance(node, list) else [node]
    if len(values) == 3:
        values = widen(values, hidden(read(file.split("/")[0], "remedied")))
    what = [step for step in steps if not step.isdigit()][-1]
    scale = 1 if re.search("bits|percent|autocorrelation", what) else 100
    for (sign, number, decimals), value in zip(NUMBER.findall(quoted), values, strict=True):
        shown = f"{scale * value:+.{len(decimals)}f}"
        assert sign.replace("−", "-") + number == (shown if sign else shown[1:]), place
    if "significant" in quoted:
        sure = (
            parent["signs"][("bits", "needles").index(what)] != "="
            if "signs" in parent
            else parent[f"p of {what}"] <= SURE
        )
        assert ("not significant" not in quoted) == sure, place


def step_into(node, step):
    """Return what a key of a dictionary, a place in a list, or a row's name and ratio lead to."""
    if isinstance(node, dict):
        return node[step]
    if step.isdigit():
        return node[int(step)]
    name, _, ratio = step.partition(" ")
    (row,) = [
        row
        for row in node
        if name in (row.get("system"), row.get("base"))
        and row["ratio"] == (float(ratio) if ratio else None)
    ]
    return row


def test_each_finding_stands_above_its_chart():
    text = " ".join((DOCS / "results.md").read_text().split())
    said = text.partition("## Findings")[2].partition(" ## ")[0]
    findings = [one.partition(" The model of bytes:")[0] for one in said.split(" - ")[1:]]
    assert len(findings) == 7
    for finding in findings:
        assert f"**{finding.strip()}**" in text


TEXT, FACTS = range(2)


def significant(reading, claim, what, sign):
    """Return the systems, with their ratios, for which a run has a verdict of a claim."""
    return {
        f"{row['system']} {row['ratio']}"
        for row in read("words", reading)["verdicts"]
        if row["claim"] == CLAIMS[claim] and row["signs"][what] == sign
    }


def test_verdicts_that_the_docs_tell_without_a_number():
    assert not significant("remedied", "hubkv", FACTS, "+")
    lost = {"kvzip+hubkv 0.95", "fastkvzip+hubkv 0.95"}
    assert significant("remedied", "hubkv", FACTS, "-") == lost
    assert not significant("letter", "graphkv", FACTS, "+")
    half = ("snapkv", "pyramidkv", "h2o", "knorm", "expected_attention")
    quarter = ("pyramidkv", "cake", "expected_attention")
    found = {f"{name}+graphkv 0.5" for name in half} | {f"{name}+graphkv 0.75" for name in quarter}
    assert significant("remedied", "graphkv", FACTS, "+") == found
    worse = {f"{name} None" for name in ("hex-3", "kcvt-3", "kivi-2", "hex-3+hubkv")}
    assert significant("remedied", "quantised", TEXT, "-") == worse
    parts = read("words", "facts")["ratios"]
    for name, first in (("without head weights", 0.95), ("without neighbours", 0.97)):
        sure = [float(x) for x in parts if parts[x][name]["against KVzip"]["p of needles"] <= SURE]
        assert min(sure) == first


def test_the_pages_say_what_was_measured_of_one_prompt():
    found = json.loads(one_prompt.FIGURES.read_text())
    rows = {row["system"]: row for row in found["rows"]}
    page = " ".join((DOCS / "one_prompt.md").read_text().split())
    first, last = found["fact"]
    assert (
        f"{found['tokens']} tokens of `{found['text']}` with the line `{found['line'].strip()}` at "
        f"tokens {first} to {last - 1}."
    ) in page
    right = {name: one_prompt.answers_right(found, row) for name, row in rows.items()}
    codes = [name for name, row in rows.items() if row["kept"] is None and name != "full"]
    assert all(right[name] for name in codes)
    shares = [100 * rows[name]["bytes"] / rows["full"]["bytes"] for name in codes]
    assert f"in {min(shares):.0f} % to {max(shares):.0f} % of the bytes" in page
    assert f"With {100 * (1 - found['removed']):.0f} % of the entries" in page
    evicting = [name for name, row in rows.items() if row["kept"] is not None]
    for name in evicting:
        base, _, refinement = name.partition("+")
        assert right[name] is right[base], f"{refinement} changes an answer, and the page denies it"
    for answer, said in ((True, "answer right"), (False, "**wrong**")):
        names = ", ".join(one_prompt.NAMES[name] for name in evicting if right[name] is answer)
        assert f"{said}: {names}" in page
    share = {name: sum(rows[name]["kept"][-200:]) / sum(rows[name]["kept"]) for name in evicting}
    assert min(share[name] for name in ("snapkv", "pyramidkv", "cake")) > 0.5
    for name in ("kvzip", "fastkvzip"):
        assert share[name] < 0.5
        assert max(rows[name]["kept"][first:last]) < 0.5
    assert "three heads of ten" in page
    assert one_prompt.MOST == 0.3
    front = (DOCS / "index.md").read_text()
    for name in ("full", "kvzip+hubkv", "snapkv", "hex-4"):
        assert f"| `{rows[name]['answer']}` | {rows[name]['bytes']:,} |" in front


@pytest.mark.parametrize("script", [first_picture, one_prompt])
def test_a_committed_picture_is_what_its_script_draws(script):
    pinned = re.search(r"^matplotlib==(.*)$", (DOCS.parent / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    if matplotlib.__version__ != pinned[1]:
        pytest.skip("another matplotlib draws the same picture in other words")
    text, strips = parts_of_a_picture(script.drawing())
    other, others = parts_of_a_picture(script.PICTURE.read_text())
    assert text == other
    for strip, another in zip(strips, others, strict=True):
        assert (strip == another).all()


def parts_of_a_picture(svg):
    """Return an SVG without the images in it, and the pixels of these."""
    image = r"data:image/png;base64,([^\"]*)"
    pixels = [imread(BytesIO(b64decode(one))) for one in re.findall(image, svg)]
    return re.sub(image, "", svg), pixels
