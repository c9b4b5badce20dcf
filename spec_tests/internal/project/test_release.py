"""The version is the same everywhere, and its vectors stay as they were published."""

from spec_tests.index import ROOT
from spec_tests.internal.project.published_vectors import digests, published, silent_changes
from spec_tests.report.report_data import suite_version

CHANGELOG = (ROOT / "docs/changelog.md").read_text()


def test_no_published_vector_has_changed_silently():
    assert silent_changes(digests(), published(), CHANGELOG) == []
    assert len(published()) >= 281


def test_the_version_is_the_same_everywhere():
    version = suite_version()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"@v{version}" in (ROOT / "docs/third_party/index.md").read_text()
    assert f"\n## {version}\n" in CHANGELOG
