"""The fleet that this repository itself is: complete, consistent, and free of what must not be in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from engine.errors import InvalidInput
from engine.registry.load import load_fleet
from engine.registry.yaml_loader import load
from engine.releases.lint import lint
from engine.releases.manifest import load_manifest
from engine.releases.model import StepClass
from engine.releases.plan import SkipReason, make_plan
from engine.releases.version import Version
from engine.render.rendered_set import Edit, Rendered, render_set
from engine.steps.catalog import load_catalog, load_module
from engine.steps.step import PatchStep

ROOT = Path(__file__).resolve().parents[3]
FLEET = load_fleet(ROOT)
MANIFEST = load_manifest(ROOT / "releases.yaml")
CATALOG = load_catalog(ROOT)
BOOTSTRAP = load_module(ROOT / "deploys" / "bootstrap.py")
TENANCY = load_module(ROOT / "deploys" / "tenancy.py")


def rendered_at(slug: str, version: Version) -> dict[str, Rendered]:
    edits = [
        Edit(entry.name, step.file, lambda text, step=step, entry=entry: step.edit(text, entry.arguments))
        for release in MANIFEST
        if not version < release.version
        for entry in release.steps
        if isinstance(step := CATALOG[entry.name], PatchStep)
    ]
    return {item.file.name: item for item in render_set(FLEET, FLEET.tenants[slug], version, edits)}


def test_the_manifest_has_no_findings() -> None:
    assert lint(MANIFEST, CATALOG.infos, limit=FLEET.settings.notify.limit_characters) == ()


def test_the_manifest_covers_what_a_manifest_can_do() -> None:
    entries = [entry for release in MANIFEST for entry in release.steps]
    assert len(MANIFEST.releases) >= 6
    assert {CATALOG[entry.name].step_class for entry in entries} == set(StepClass)
    assert len(set(entries)) < len(entries)
    assert {step.name for step in CATALOG.values()} == {entry.name for entry in entries}


def test_lab_hosts_hold_every_package_because_they_have_no_index() -> None:
    assert set(BOOTSTRAP.PACKAGES) == set(FLEET.settings.lab.packages)


def test_only_real_estate_tenants_get_the_real_estate_skills() -> None:
    plans = {
        slug: make_plan(MANIFEST, CATALOG.infos, marker=None, trade=tenant.trade, role=tenant.role)
        for slug, tenant in FLEET.tenants.items()
    }
    assert "real_estate_skills" in [step.entry.name for step in plans["maple"].steps]
    skipped = [skip.entry.name for skip in plans["harbor"].skipped if skip.reason is SkipReason.TRADE]
    assert skipped == ["real_estate_skills"]


@pytest.mark.parametrize("slug", FLEET.tenants)
@pytest.mark.parametrize("release", MANIFEST.releases, ids=lambda release: str(release.version))
def test_every_tenant_renders_at_every_version(slug: str, release: object, tmp_path: Path) -> None:
    rendered = rendered_at(slug, release.version)  # type: ignore[attr-defined]
    config = tmp_path / "config.yaml"
    config.write_bytes(rendered["config"].content)
    assert load(config).value["model"]["api_key"] == "${MODEL_API_KEY}"
    personality = rendered["personality"].content.decode()
    assert FLEET.tenants[slug].business in personality.splitlines()[0]
    assert all(item.content.endswith(b"\n") for item in rendered.values())


def test_the_personality_changes_with_its_release_and_a_second_edit_changes_nothing() -> None:
    before, after = (
        rendered_at("maple", Version.parse(version))["personality"].content.decode()
        for version in ("2026.10.22.3", "2026.10.22.4")
    )
    assert before.startswith("You are the professional assistant of Maple & Daughters Homes.\n")
    assert after.startswith("You are the plain-spoken assistant of Maple & Daughters Homes.\n")
    assert CATALOG["plain_language"].function(after) == after


@pytest.mark.parametrize("lock", sorted((ROOT / "deploys" / "wheelhouse").glob("*.txt")), ids=lambda lock: lock.name)
def test_lock_files_name_no_place_and_hash_every_pin(lock: Path) -> None:
    text = lock.read_text()
    assert "/" not in text
    assert all("--hash=sha256:" in pin for pin in re.split(r"\n(?=[a-z])", text.strip()))


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"plain", b'K="plain"\n'),
        (b'a"b', b'K="a\\"b"\n'),
        (b"a\\b$c`d", b'K="a\\\\b\\$c\\`d"\n'),
        ("é'\n".encode(), 'K="é\'\n"\n'.encode()),
        (b"", b'K=""\n'),
    ],
)
def test_a_secret_is_quoted_for_the_unit(value: bytes, line: bytes) -> None:
    assert TENANCY.environment_line("K", value) == line


@pytest.mark.parametrize("value", [b"\xff", b"a\0b"])
def test_a_secret_that_no_environment_can_hold_is_refused_without_being_shown(value: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        TENANCY.environment_line("K", value)
    assert "a\0b" not in str(refused.value)
