"""The version is the same everywhere, and its vectors stay as they were published."""

from spec_tests.index import ROOT
from spec_tests.internal.project.published_vectors import (
    Published,
    digest,
    digests,
    published,
    silent_changes,
)
from spec_tests.report.report_data import suite_version

CHANGELOG = (ROOT / "docs/changelog.md").read_text()


def test_no_published_vector_has_changed_silently():
    assert silent_changes(digests(), published(), CHANGELOG) == []
    assert len(published()) >= 281


def test_a_change_of_a_published_vector_is_seen_unless_the_changelog_tells_it():
    vector = {"id": "one", "spec": ["HubKV-6"], "hunts": "a word", "inputs": {"x": [1.0]}}
    before = {"hubkv/one": Published("0.2.0", digest(vector))}
    reworded = {"hubkv/one": digest(vector | {"hunts": "another"}), "hubkv/new": "0"}
    assert silent_changes(reworded, before, "") == []
    for changed in ({}, {"hubkv/one": digest(vector | {"inputs": {"x": [1]}})}):
        assert silent_changes(changed, before, "### Added\n\n- `hubkv/one`\n") == ["hubkv/one"]
        told = "## 0.3.0\n\n### Removed\n\n- `hubkv/one`: it was wrong.\n"
        assert silent_changes(changed, before, told) == []


def test_the_version_is_the_same_everywhere():
    version = suite_version()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"@v{version}" in (ROOT / "docs/third_party/index.md").read_text()
    assert f"\n## {version}\n" in CHANGELOG
