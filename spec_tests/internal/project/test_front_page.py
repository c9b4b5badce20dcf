"""The front pages: README.md and docs/index.md say what the code says, and their snippets run."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
FRONT = ("README.md", "docs/index.md")
TEXT_READ = "50d9a690dbf888a89eacac8edd9727268c8ddc68997f762255570911db7ecde0"
"""SHA-256 of the text that the answers on the front pages are about; Python versions may differ."""


def test_the_snippets_of_the_readme_run_as_pasted_into_a_fresh_process():
    pytest.importorskip("transformers")
    readme = (ROOT / "README.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S))
    program += "\nprint(answer.shape[1] - inputs['input_ids'].shape[1])\n"
    ended = subprocess.run(
        [sys.executable, "-"], input=program, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    *sizes, new = ended.stdout.splitlines()
    assert int(new) == 20
    assert "takes {} at 32K tokens and {} at 128K".format(*sizes) in readme.replace("\n", " ")


def test_the_answers_on_the_front_pages_are_those_of_the_command():
    pytest.importorskip("transformers")
    import torch

    import optimized
    from optimized.study import command, first_answer
    from optimized.study.documents import Maker
    from optimized.study.measurements import MeasurementSettings
    from optimized.tiny import WORDS

    text = first_answer.default_text()
    if hashlib.sha256(text[:4000].encode()).hexdigest() != TEXT_READ:
        pytest.skip(f"another Python, with another {first_answer.FILE}")
    model, tokenizer = command.load(WORDS, torch.device("cpu"))
    read = first_answer.document(Maker(text, tokenizer), first_answer.TOKENS)
    repeat = command.request(tokenizer)
    settings = MeasurementSettings("remedied", 0, optimized, None, None, repeat)
    found = first_answer.answers(model, tokenizer, read, settings)
    lines = list(first_answer.lines("words", "a text", len(read.context), first_answer.FACT, found))
    printed = [line.strip() for line in lines if line.endswith(" bytes")]
    assert len(printed) == 4
    block = "\n".join(printed)
    assert f"```text\n{block}\n```" in (ROOT / "README.md").read_text()
    rows = zip(first_answer.SYSTEMS.values(), found, strict=True)
    table = "\n".join(f"| {name} | `{one.text}` | {one.nbytes:,} |" for name, one in rows)
    assert table in (ROOT / "docs/index.md").read_text()


def test_the_averages_on_the_front_page_are_those_of_the_shipped_run():
    run = json.loads((ROOT / "docs/shipped/words/remedied.json").read_text())
    share = {(row["system"], row["ratio"]): row["needle_accuracy"] for row in run["rows"]}
    page = " ".join((ROOT / "docs/index.md").read_text().split())
    facts = len(run["documents"]["lengths"]) * run["command"]["needles"]
    hubkv, snapkv, hexed = share["kvzip+hubkv", 0.9], share["snapkv", 0.9], share["hex-4", None]
    assert (
        f"an average over {facts} others: with a tenth of the cache KVzip + HubKV finds "
        f"{100 * hubkv:.0f} % of them, and SnapKV {100 * snapkv:.0f} %; HEX-4 finds "
        f"{100 * hexed:.0f} %."
    ) in page
    kvzip = share["kvzip", 0.9], share["kvzip", 0.95]
    refined = hubkv, share["kvzip+hubkv", 0.95]
    assert (
        "KVzip finds {:.0f} % at a tenth of the bytes and {:.0f} % at a twentieth; with HubKV "
        "{:.0f} % and {:.0f} %. SnapKV finds {:.0f} % at a half, with GraphKV remedied {:.0f} %, "
        "and a random choice {:.0f} %."
    ).format(
        *(100 * one for one in (*kvzip, *refined)),
        *(100 * share[name, 0.5] for name in ("snapkv", "snapkv+graphkv", "random")),
    ) in page


def test_the_picture_is_what_its_script_draws():
    matplotlib = pytest.importorskip("matplotlib")
    pinned = re.search(r"^matplotlib==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    if matplotlib.__version__ != pinned[1]:
        pytest.skip("another matplotlib draws the same picture in other words")
    draw = "import first_picture; print(first_picture.drawing(), end='')"
    drawn = subprocess.run(
        [sys.executable, "-c", draw], cwd=ROOT / "docs", capture_output=True, text=True, check=True
    )
    assert drawn.stdout == (ROOT / "docs/first_picture.svg").read_text()


@pytest.mark.parametrize("page", [*FRONT, "mkdocs.yml", "docs/glossary.md", "CITATION.cff"])
def test_the_papers_come_in_one_order(page):
    text = (ROOT / page).read_text()
    titles = {
        "README.md": ("*HubKV: Eff", "*GraphKV: Break", "*HEX: Merg"),
        "docs/index.md": ("*HubKV: Eff", "*GraphKV: Break", "*HEX: Merg"),
        "mkdocs.yml": ("  - HubKV:", "  - GraphKV:", "  - HEX:"),
        "docs/glossary.md": ("## HubKV", "## GraphKV", "## HEX"),
        "CITATION.cff": ('"HubKV: Eff', '"GraphKV: Break', '"HEX: Merg'),
    }[page]
    places = [text.index(title) for title in titles]
    assert places == sorted(places)
    assert not re.search(r"HEX, (HubKV|GraphKV)|GraphKV, HubKV|HubKV, HEX", text)
