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


def test_lint_names_a_step_that_expects_what_it_does_not_write(tenantry: Tenantry):
    step = tenantry.root / "deploys/steps/greeting.py"
    text = step.read_text().replace("import Answer,", "import Answer, File,")
    step.write_text(text.replace("writes=", 'expects=(File("/etc/other", content=b"x"),), writes='))
    document = tenantry.document("release-lint", "release", "lint", code=2)
    # Both entries of the step, each in its line.
    assert [finding["rule"] for finding in document["findings"]] == ["expects", "expects"]
    assert "step greeting expects file:/etc/other" in document["findings"][0]["message"]


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


def test_new_adds_a_release_with_the_next_version_and_leaves_the_rest_alone(tenantry: Tenantry):
    before = (tenantry.root / "releases.yaml").read_text()
    document = tenantry.document(
        "release-new", "release", "new", "Says: hi", "--step", "polite", "--step", 'greeting={"word": "hey: you"}',
        "--owner-note", "Your assistant says hi.",
    )  # fmt: skip
    text = (tenantry.root / "releases.yaml").read_text()
    assert text.startswith(before)
    (shown,) = tenantry.document("release-show", "release", "show", document["version"])["releases"]
    assert shown["title"] == "Says: hi"
    assert shown["steps"][1] == {"name": "greeting", "arguments": {"word": "hey: you"}}
    again = tenantry.document("release-new", "release", "new", "More", "--owner-note", "More.")
    assert again["version"] == f"{document['version']}.1"
    assert tenantry("release", "lint").code == 0


def test_new_writes_nothing_that_lint_would_refuse(tenantry: Tenantry):
    before = (tenantry.root / "releases.yaml").read_bytes()
    for arguments in (
        ("Title", "--step", "unknown_step", "--owner-note", "Hi."),
        ("Title", "--step", 'greeting={"wrod": "x"}', "--owner-note", "Hi."),
        ("Title", "--step", "greeting=word", "--owner-note", "Hi."),
        ("Title", "--owner-note", "x" * 600),
        ("Ti\ntle", "--owner-note", "Hi."),
        ("Title",),
        ("Title", "--owner-note", "Hi.", "--dry-run"),
    ):
        result = tenantry("release", "new", *arguments)
        assert result.code == (0 if "--dry-run" in arguments else 2), (arguments, result)
        assert (tenantry.root / "releases.yaml").read_bytes() == before


def test_new_refuses_a_manifest_that_it_cannot_extend(tenantry: Tenantry):
    path = tenantry.root / "releases.yaml"
    path.write_text('releases: [{version: "2026.10.22", title: A, steps: [], details: "", owner_note: A.}]\n')
    result = tenantry("release", "new", "B", "--owner-note", "B.")
    assert result.code == 1
    assert "lines of its own" in result.err
