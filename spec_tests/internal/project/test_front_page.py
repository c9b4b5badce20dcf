"""The front pages: README.md and docs/index.md say what the code says, and their snippets run."""

import hashlib
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent.parent
FRONT = ("README.md", "docs/index.md")
TEXT_READ = "50d9a690dbf888a89eacac8edd9727268c8ddc68997f762255570911db7ecde0"
"""SHA-256 of the text that the answers on the front pages are about; Python versions may differ."""


def snippets(page: str) -> str:
    """Return the Python snippets of a page that have no prompts, in order, as one program."""
    found = re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.M | re.S)
    return "\n".join(one for one in found if not one.startswith(">>>"))


@pytest.mark.parametrize("page", ["README.md", "docs/models.md"])
def test_snippets_run_as_pasted_into_a_fresh_process(page):
    pytest.importorskip("transformers")
    program = snippets(page) + "\nprint(answer.shape[1] - inputs['input_ids'].shape[1])\n"
    ended = subprocess.run(
        [sys.executable, "-"], input=program, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    sizes = ["4 GiB", "16 GiB"] if page == "README.md" else []
    assert ended.stdout.splitlines() == [*sizes, "20"]
    for size in sizes:
        assert size in (ROOT / page).read_text()


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
    for page in FRONT:
        assert f"```text\n{block}\n```" in (ROOT / page).read_text()


def test_the_picture_is_what_its_script_draws(monkeypatch):
    matplotlib = pytest.importorskip("matplotlib")
    pinned = re.search(r"^matplotlib==(.*)$", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    if matplotlib.__version__ != pinned[1]:
        pytest.skip("another matplotlib draws the same picture in other words")
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    spec = importlib.util.spec_from_file_location("first_picture", ROOT / "docs/first_picture.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.drawing() == script.FILE.read_text()


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
