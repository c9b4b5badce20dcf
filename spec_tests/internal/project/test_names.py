"""The names of the top-level packages, in folders where another project has them too."""

import os
import subprocess
import sys

import pytest

from spec_tests.index import ROOT


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ("reference.py", ("-m", "spec_tests", "--help")),
        ("optimized/__init__.py", ("-m", "spec_tests", "--help")),
        ("reference/__init__.py", ("-c", "import optimized")),
    ],
)
def test_a_module_of_another_project_is_named_with_both_paths(tmp_path, theirs, words):
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command, environment = [sys.executable, *words], os.environ | {"PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True
        )

    file, name = tmp_path / theirs, theirs.partition(".")[0].partition("/")[0]
    file.parent.mkdir(exist_ok=True)
    assert run("-c", "import optimized").returncode == 0  # a folder without code hides nothing
    file.write_text("raise RuntimeError('must not be imported')")
    done = run(*words)
    (*_, last) = done.stderr.splitlines()
    assert done.returncode == 1
    assert f"`{name}` is {file.resolve()}, not {ROOT / name} of kvspec" in last
    assert "`python -P`" in last
