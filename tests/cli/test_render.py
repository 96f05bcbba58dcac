"""render: two revisions compared without a host."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Tenantry
from tests.fleets import HEAD, MANIFEST, TENANTS, commit, write_whole_fleet

NEWER = MANIFEST + '  - {version: "2026.10.24", title: More, steps: [listings], details: "", owner_note: More.}\n'


def by_slug(document: dict) -> dict:
    return {entry["slug"]: entry for entry in document["tenants"]}


def test_without_a_revision_it_lists_what_the_head_renders(tenantry: Tenantry):
    tenants = by_slug(tenantry.document("render", "render"))
    assert tenants["maple"]["steps"] == ["greeting", "listings", "polite", "greeting(word=hi)"]
    assert tenants["harbor"]["steps"] == ["greeting", "polite", "greeting(word=hi)"]
    assert [file["path"] for file in tenants["maple"]["files"]] == ["/srv/SOUL.md"]
    assert not tenantry.state_directory.exists()


def test_an_unchanged_fleet_changes_nothing(tenantry: Tenantry):
    commit(tenantry.root)
    document = tenantry.document("render", "render", "--against", "HEAD", "--exit-code")
    assert not any(entry["changes"] for entry in document["tenants"])
    assert "maple: nothing changes against HEAD" in tenantry("render", "--against", "HEAD").out


def test_an_edited_template_is_shown_for_every_tenant(tenantry: Tenantry):
    commit(tenantry.root)
    (tenantry.root / "templates/personality.md.j2").write_text("You serve {{ tenant.owner_name }}.\n")
    tenants = by_slug(tenantry.document("render", "render", "--against", "HEAD", "--exit-code", code=3))
    (file,) = tenants["maple"]["files"]
    assert file["change"] == "changed"
    assert "-You work for Rosa." in file["diff"]
    assert "+You serve Rosa." in file["diff"]
    assert file["diff"][:2] == ["--- /srv/SOUL.md (HEAD)", "+++ /srv/SOUL.md"]
    assert " Speak plainly." in file["diff"], "the patch steps of the releases are folded in"
    assert "+You serve Jonas." in tenantry("render", "harbor", "--against", "HEAD").out


def test_a_registry_value_with_template_signs_is_rendered_once(tenantry: Tenantry):
    commit(tenantry.root)
    odd = '{{ 7 * 7 }} %} & \\" ü'
    tenants = TENANTS.replace("owner_name: Rosa", f'owner_name: "{odd}"')
    (tenantry.root / "inventory/tenants.yaml").write_text(tenants)
    entry = by_slug(tenantry.document("render", "render", "--against", "HEAD"))["maple"]
    assert '+You work for {{ 7 * 7 }} %} & " ü.' in entry["files"][0]["diff"]


def test_a_new_release_is_pending_where_its_steps_apply(tenantry: Tenantry):
    commit(tenantry.root)
    (tenantry.root / "releases.yaml").write_text(NEWER)
    tenants = by_slug(tenantry.document("render", "render", "--against", "HEAD"))
    assert tenants["maple"]["steps"] == ["listings"]
    assert (tenants["maple"]["old_head"], tenants["maple"]["head"]) == (HEAD, "2026.10.24")
    assert tenants["harbor"]["steps"] == []


def test_tenants_that_come_and_go_are_named(tenantry: Tenantry):
    commit(tenantry.root)
    (tenantry.root / "inventory/tenants.yaml").write_text(TENANTS.replace("  maple:", "  cedar:"))
    tenants = by_slug(tenantry.document("render", "render", "--against", "HEAD"))
    assert tenants["cedar"]["old_head"] is None
    assert [file["change"] for file in tenants["cedar"]["files"]] == ["added"]
    assert tenants["maple"]["head"] is None
    assert [file["change"] for file in tenants["maple"]["files"]] == ["removed"]


def test_a_fleet_below_the_top_of_its_repository_is_found(tmp_path: Path, tenantry: Tenantry):
    root = write_whole_fleet(tmp_path / "repository" / "fleets" / "one")
    commit(tmp_path / "repository")
    assert tenantry("-C", str(root), "render", "--against", "HEAD").code == 0


def test_a_revision_that_is_none_or_holds_no_usable_fleet_exits_2(tenantry: Tenantry):
    assert "git repository" in tenantry("render", "--against", "HEAD").err
    (tenantry.root / "releases.yaml").write_text(MANIFEST.replace("[greeting]", "[greting]"))
    commit(tenantry.root)
    (tenantry.root / "releases.yaml").write_text(MANIFEST)
    unusable = tenantry("render", "--against", "HEAD")
    assert unusable.code == 2
    assert "HEAD:releases.yaml:4" in unusable.err
    for reference in ("nowhere", "--output=x", "HEAD:releases.yaml"):
        assert tenantry("render", f"--against={reference}").code == 2


def test_a_template_with_an_undefined_variable_exits_2_and_names_the_line(tenantry: Tenantry):
    (tenantry.root / "templates/personality.md.j2").write_text("Hello\n{{ tenant.nickname }}\n")
    result = tenantry("render")
    assert result.code == 2
    assert "personality.md.j2:2" in result.err
