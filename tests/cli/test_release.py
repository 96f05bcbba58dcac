"""release lint and release show."""

from __future__ import annotations

from tests.cli.conftest import Tenantry
from tests.fleets import HEAD, MANIFEST, VERSIONS, commit


def test_lint_of_a_good_manifest_exits_0(tenantry: Tenantry):
    assert tenantry("release", "lint").out == "releases.yaml: no findings\n"
    assert tenantry.document("release-lint", "release", "lint") == {"findings": []}


def test_lint_names_the_line_of_every_finding(tenantry: Tenantry):
    text = MANIFEST.replace("[listings]", "[listngs]").replace("{word: hi}", "{word: 3}")
    (tenantry.root / "releases.yaml").write_text(text)
    document = tenantry.document("release-lint", "release", "lint", code=2)
    assert [finding["rule"] for finding in document["findings"]] == ["unknown-step", "arguments"]
    result = tenantry("release", "lint")
    line = text.splitlines().index("    steps: [listngs]") + 1
    assert f"releases.yaml:{line}: " in result.out
    assert "2 findings" in result.err


def test_lint_names_the_line_of_a_key_that_cannot_be_filled_in(tenantry: Tenantry):
    step = tenantry.root / "deploys/steps/greeting.py"
    step.write_text(step.read_text().replace("file:/etc/greeting", "file:/etc/{wrod}"))
    document = tenantry.document("release-lint", "release", "lint", code=2)
    assert {finding["rule"] for finding in document["findings"]} == {"arguments"}
    assert "'file:/etc/{wrod}' cannot be filled in" in document["findings"][0]["message"]


def test_lint_against_a_revision_finds_edited_removed_and_inserted_releases(tenantry: Tenantry):
    commit(tenantry.root)
    assert tenantry("release", "lint", "--against", "HEAD").code == 0
    text = MANIFEST.replace("{word: hi}", "{word: hey}").replace('"2026.10.22.2"', '"2026.10.22.1"')
    (tenantry.root / "releases.yaml").write_text(text)
    document = tenantry.document("release-lint", "release", "lint", "--against", "HEAD", code=2)
    assert {finding["rule"] for finding in document["findings"]} == {"edited", "removed", "inserted"}


def test_lint_against_a_revision_lets_prose_and_new_releases_pass(tenantry: Tenantry):
    commit(tenantry.root)
    added = MANIFEST.replace("Plain words", "Plainer words") + (
        '  - {version: "2026.10.24", title: More, steps: [], details: "", owner_note: More.}\n'
    )
    (tenantry.root / "releases.yaml").write_text(added)
    assert tenantry("release", "lint", "--against", "HEAD").code == 0


def test_show_lists_releases_with_their_digests(tenantry: Tenantry):
    document = tenantry.document("release-show", "release", "show")
    assert document["head"] == HEAD
    assert tuple(release["version"] for release in document["releases"]) == VERSIONS
    assert document["releases"][2]["steps"][1] == {"name": "greeting", "arguments": {"word": "hi"}}
    assert [line.split()[0] for line in tenantry("release", "show").out.splitlines()] == ["version", *VERSIONS]


def test_show_of_one_release_takes_any_spelling_of_its_version(tenantry: Tenantry):
    document = tenantry.document("release-show", "release", "show", "2026.10.22.02")
    assert [release["version"] for release in document["releases"]] == ["2026.10.22.2"]
    assert "For estate agents" in tenantry("release", "show", "2026.10.22.2").out


def test_show_of_an_unknown_release_names_the_known_ones(tenantry: Tenantry):
    result = tenantry("release", "show", "2026.1.1")
    assert result.code == 2
    assert HEAD in result.err
    assert tenantry("release", "show", "newest").code == 2
