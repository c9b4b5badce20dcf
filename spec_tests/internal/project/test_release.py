"""The version is the same everywhere, and its vectors stay as they were published."""

import json

import pytest

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
VECTOR = {
    "id": "one",
    "spec": ["HubKV-6"],
    "hunts": "a word",
    "inputs": {"x": [1.0]},
    "expected": 1,
}


def test_no_published_vector_has_changed_silently():
    assert silent_changes(digests(), published(), CHANGELOG) == []
    assert len(published()) >= 281


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"x": [1]}},
        {"expected": 2},
        {"spec": ["HubKV-7"]},
        {"drawn": True},
        {"id": "two"},
    ],
)
def test_a_change_of_a_published_vector_is_seen_and_may_be_told(change):
    before = {"hubkv/one": Published("0.2.0", digest(VECTOR))}
    now = {f"hubkv/{VECTOR['id']}": digest(VECTOR)}
    edited = VECTOR | change
    later = {f"hubkv/{edited['id']}": digest(edited)}
    assert silent_changes(now, before, "") == []
    for after in (later, {}):
        assert silent_changes(after, before, "### Added\n\n- `hubkv/one`\n") == ["hubkv/one"]
        told = "## 0.3.0\n\n### Removed\n\n- `hubkv/one`: it was wrong.\n"
        assert silent_changes(after, before, told) == []


def test_a_remark_may_be_reworded_and_a_vector_added():
    before = {"hubkv/one": Published("0.2.0", digest(VECTOR))}
    now = {"hubkv/one": digest(VECTOR | {"hunts": "another"}), "hubkv/new": "0"}
    assert silent_changes(now, before, "") == []


def test_vectors_of_all_files_are_digested_and_an_id_is_unique_in_its_folder(tmp_path):
    for name in ("vectors.json", "generated.json"):
        (tmp_path / "csr").mkdir(exist_ok=True)
        (tmp_path / "csr" / name).write_text(json.dumps([VECTOR | {"id": name[:3]}]))
    assert [*digests(tmp_path)] == ["csr/vec", "csr/gen"]
    (tmp_path / "csr/traces.json").write_text(json.dumps([VECTOR | {"id": "gen"}]))
    with pytest.raises(ValueError, match="the id gen must be unique"):
        digests(tmp_path)


def test_the_version_is_the_same_everywhere():
    version = suite_version()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"@v{version}" in (ROOT / "docs/third_party/index.md").read_text()
    assert f"\n## {version}\n" in CHANGELOG
