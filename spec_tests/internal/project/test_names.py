"""The names of the top-level packages, in folders where another project has them too."""

import os
import subprocess
import sys

import pytest

from spec_tests.index import ROOT


def run(folder, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, with this repository on its path."""
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ("reference.py", ("-m", "spec_tests", "--help")),
        ("reference.py", ("-m", "optimized", "--help")),
        ("optimized/__init__.py", ("-m", "spec_tests", "--help")),
        ("reference/__init__.py", ("-c", "import optimized")),
    ],
)
def test_a_module_of_another_project_is_named_with_both_paths(tmp_path, theirs, words):
    file, name = tmp_path / theirs, theirs.partition(".")[0].partition("/")[0]
    file.parent.mkdir(exist_ok=True)
    file.write_text("raise RuntimeError('must not be imported')")
    done = run(tmp_path, *words)
    (*_, last) = done.stderr.splitlines()
    assert done.returncode == 1
    assert f"`{name}` is {file.resolve()}, not {ROOT / name} of kvspec" in last
    assert "`python -P`" in last


def test_python_p_leaves_out_the_current_folder(tmp_path):
    (tmp_path / "reference.py").write_text("raise RuntimeError('must not be imported')")
    assert run(tmp_path, "-P", "-c", "import optimized").returncode == 0


def test_a_folder_without_code_hides_nothing(tmp_path):
    (tmp_path / "reference").mkdir()
    assert run(tmp_path, "-c", "import optimized").returncode == 0


def test_kvspec_names_the_packages_and_imports_the_plug_in_last(tmp_path):
    (tmp_path / "kvspec").symlink_to(ROOT / "optimized/_kvspec")
    code = "import sys, kvspec, optimized, reference\n"
    code += "assert kvspec.reference is reference and kvspec.optimized is optimized\n"
    code += "assert 'optimized.models' not in sys.modules and kvspec.__version__"
    assert run(tmp_path, "-c", code).returncode == 0


def test_kvspec_refuses_a_package_of_another_project(tmp_path):
    (tmp_path / "kvspec").symlink_to(ROOT / "optimized/_kvspec")
    (tmp_path / "optimized.py").touch()
    done = run(tmp_path, "-c", "import kvspec")
    assert "one of them is not of kvspec" in done.stderr
    assert str(tmp_path / "optimized.py") in done.stderr
