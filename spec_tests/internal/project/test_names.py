"""The names of the top-level packages, in folders where another project has them too."""

import pytest

from spec_tests.index import ROOT
from spec_tests.internal.project.run_python import run_python


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ("reference.py", ("-m", "spec_tests", "--help")),
        ("optimized/__init__.py", ("-m", "spec_tests", "--help")),
        ("reference/__init__.py", ("-c", "import optimized")),
    ],
)
def test_a_module_of_another_project_is_named_with_both_paths(tmp_path, theirs, words):
    file, name = tmp_path / theirs, theirs.partition(".")[0].partition("/")[0]
    file.parent.mkdir(exist_ok=True)
    assert (
        run_python("-c", "import optimized", folder=tmp_path).returncode == 0
    )  # a folder without code hides nothing
    file.write_text("raise RuntimeError('must not be imported')")
    done = run_python(*words, folder=tmp_path)
    (*_, last) = done.stderr.splitlines()
    assert done.returncode == 1
    assert f"`{name}` is {file.resolve()}, not {ROOT / name} of kvspec" in last
    assert "`python -P`" in last
