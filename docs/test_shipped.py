"""What the docs say of the shipped models' runs is what the runs show.

A paragraph with numbers of a run is followed by a comment. Each of its lines is a quotation of the
paragraph and, after an equals sign, where docs/shipped has the numbers in it: a file, then keys of
dictionaries, places in lists, or the system and ratio of a row.
"""

import json
import re
import sys
from pathlib import Path

import pytest

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("transformers")
DOCS = Path(__file__).parent
sys.path.append(str(DOCS))  # as `python docs/figures.py` has it

import first_picture  # noqa: E402
import one_prompt  # noqa: E402
import walk_numbers  # noqa: E402
from shipped_tables import SURE, compare, hidden, pages, read, widen  # noqa: E402

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


@pytest.mark.parametrize(("page", "text"), pages().items(), ids=lambda x: getattr(x, "stem", ""))
def test_the_tables_of_a_page_are_those_of_the_runs(page, text):
    assert "<!-- table" in text
    assert page.read_text() == text, "run docs/shipped_tables.py"


def test_a_run_is_compared_with_the_shipped_one(tmp_path):
    run = read("smollm2", "HEX-Tab2-noise")
    file = tmp_path / "figures.json"
    file.write_text(json.dumps(run))
    assert "72 of 72 numbers are those of HEX-Tab2-noise" in compare(tmp_path)
    run["verdicts"][2]["bits"][0] += 0.001
    file.write_text(json.dumps(run))
    assert compare(tmp_path).count("in place of") == 1
    file.write_text(json.dumps(run | {"command": run["command"] | {"documents": 8}}))
    assert "no shipped run" in compare(tmp_path)


def assert_shown(quoted, place):
    """Compare the numbers of a quotation, and whether they are called significant, with a run."""
    file, *steps = place.split(" / ")
    parent = node = run = read(*file.split("/"))
    for step in steps:
        parent, node = node, step_into(node, step)
    values = node if isinstance(node, list) else [node]
    if len(values) == 3:
        run = run if "command" in run else read(file.split("/")[0], "remedied")
        values = widen(values, hidden(run))
    what = [step for step in steps if not step.isdigit()][-1]
    scale = 1 if re.search("bits|percent|autocorrelation", what) else 100
    for (sign, number, decimals), value in zip(NUMBER.findall(quoted), values, strict=True):
        shown = f"{scale * value:+.{len(decimals)}f}"
        assert sign.replace("−", "-") + number == (shown if sign else shown[1:]), place
    if "significant" in quoted:
        sure = (
            parent["signs"][("bits", "needles").index(what)] in "+-"
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


def test_the_pages_say_which_answers_of_one_prompt_are_right():
    found = json.loads(one_prompt.FIGURES.read_text())
    rows = {row["system"]: row for row in found["rows"]}
    page = " ".join((DOCS / "one_prompt.md").read_text().split())
    assert f"{found['tokens']} tokens of `{found['text']}` with the line" in page
    evicting = [name for name, row in rows.items() if row["kept"] is not None]
    for answer, said in ((True, "answer right"), (False, "**wrong**")):
        right = [one for one in evicting if one_prompt.answers_right(found, rows[one]) is answer]
        assert f"{said}: {', '.join(one_prompt.NAMES[one] for one in right)}" in page
    front = (DOCS / "index.md").read_text()
    for name in ("full", "kvzip+hubkv", "snapkv", "hex-4"):
        assert f"| `{rows[name]['answer']}` | {rows[name]['bytes']:,} |" in front


@pytest.mark.parametrize("script", [first_picture, one_prompt])
def test_a_committed_picture_is_what_its_script_draws(script):
    pinned = re.search(r"^matplotlib==(.*)$", (DOCS.parent / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    if matplotlib.__version__ != pinned[1]:
        pytest.skip("another matplotlib draws the same picture in other words")
    drawn, committed = (
        re.sub(r"data:image/png;base64,[^\"]*", "", svg)  # other machines compress it otherwise
        for svg in (script.drawing(), script.PICTURE.read_text())
    )
    assert drawn == committed


def test_the_numbers_of_the_interactive_pages_are_those_of_the_walks():
    assert walk_numbers.FILE.read_text() == walk_numbers.text(), "run docs/walk_numbers.py"
