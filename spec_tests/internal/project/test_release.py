"""The version is the same everywhere, its vectors stay published, its code stays short."""

import shutil
import subprocess

import pytest

from spec_tests.index import ROOT
from spec_tests.internal.project.published_vectors import digests, published, silent_changes
from spec_tests.report.report_data import suite_version

LINES = 73_000
CHANGELOG = (ROOT / "docs/changelog.md").read_text()


def test_no_published_vector_has_changed_silently():
    assert silent_changes(digests(), published(), CHANGELOG) == []
    assert len(published()) >= 281


def test_the_version_is_the_same_everywhere():
    version = suite_version()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"@v{version}" in (ROOT / "docs/third_party/index.md").read_text()
    assert f"\n## {version}\n" in CHANGELOG


def test_the_project_stays_as_short_as_a_reader_can_bear():
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("needs a clone, since git lists the files")
    listed = subprocess.check_output(["git", "ls-files", "*.py"], cwd=ROOT, text=True).splitlines()
    files = [ROOT / name for name in listed if (ROOT / name).exists()]
    lines = sum(len(file.read_text().splitlines()) for file in files)
    assert lines <= LINES, (
        f"{lines} lines of Python are {lines - LINES} too many: merge copies into one function or "
        "table, delete tests that another test makes needless; never squeeze lines"
    )
