"""The front pages: README.md and docs/index.md say what the code says, and their snippets run."""

import hashlib
import re

import pytest

from spec_tests.index import ROOT
from spec_tests.internal.project.run_python import run_python

TEXT_READ = "50d9a690dbf888a89eacac8edd9727268c8ddc68997f762255570911db7ecde0"
"""SHA-256 of the text that the answers on the front pages are about; Python versions may differ."""


def test_the_snippets_of_the_readme_run_as_pasted_into_a_fresh_process():
    pytest.importorskip("transformers")
    readme = (ROOT / "README.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```$", readme, re.M | re.S))
    program += "\nprint(answer.shape[1] - inputs['input_ids'].shape[1])\n"
    done = run_python("-", input=program)
    assert done.returncode == 0, done.stderr
    *sizes, new = done.stdout.splitlines()
    assert int(new) == 20
    assert "takes {} at 32K tokens and {} at 128K".format(*sizes) in readme.replace("\n", " ")


def test_the_answers_on_the_front_pages_are_those_of_the_command():
    pytest.importorskip("transformers")

    import optimized
    from optimized.models.load import load
    from optimized.study import first_answer
    from optimized.study.documents import Maker
    from optimized.study.forms import request
    from optimized.study.measurements import MeasurementSettings
    from optimized.tiny import WORDS

    text = first_answer.default_text()
    if hashlib.sha256(text[:4000].encode()).hexdigest() != TEXT_READ:
        pytest.skip(f"another Python, with another {first_answer.FILE}")
    model, tokenizer = load(str(WORDS))
    read = first_answer.document(Maker(text, tokenizer), first_answer.TOKENS)
    repeat = request(tokenizer)
    settings = MeasurementSettings("remedied", 0, optimized, None, None, repeat)
    found = first_answer.answers(model, tokenizer, read, settings)
    lines = list(
        first_answer.lines("words", "a text", len(read.context), first_answer.WORDS, found)
    )
    printed = [line.strip() for line in lines if line.endswith(" bytes")]
    assert len(printed) == 4
    block = "\n".join(printed)
    assert f"```text\n{block}\n```" in (ROOT / "README.md").read_text()
    rows = zip(first_answer.SYSTEMS.values(), found, strict=True)
    table = "\n".join(f"| {name} | `{answer.text}` | {answer.nbytes:,} |" for name, answer in rows)
    assert table in (ROOT / "docs/index.md").read_text()
