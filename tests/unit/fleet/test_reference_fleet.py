"""The fleet that this repository itself is: complete, consistent, and free of what must not be in it."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.drift.expected import OwnerKind, Phases, expected_state
from engine.environments.releases import load_releases
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
from engine.updater.workspace import open_workspace

ROOT = Path(__file__).resolve().parents[3]
FLEET = load_fleet(ROOT)
MANIFEST = load_manifest(ROOT / "releases.yaml")
CATALOG = load_catalog(ROOT)
BOOTSTRAP = load_module(ROOT / "deploys" / "bootstrap.py")


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
    assert {CATALOG[entry.name].step_class for entry in entries} == set(StepClass)
    assert {step.name for step in CATALOG.values()} == {entry.name for entry in entries}


def test_the_manifest_is_of_the_size_that_such_fleets_have() -> None:
    entries = [entry for release in MANIFEST for entry in release.steps]
    days = Counter(release.version.key[:3] for release in MANIFEST)
    assert (str(MANIFEST.releases[0].version), str(MANIFEST.head)) == ("2026.10.22", "2026.10.23.2")
    assert (len(MANIFEST.releases), days) == (21, {(2026, 10, 22): 18, (2026, 10, 23): 3})
    assert (len(entries), len({entry.name for entry in entries})) == (25, 22)
    assert Counter(len(release.steps) for release in MANIFEST) == {1: 17, 2: 4}
    assert [entry.name for entry, times in Counter(entries).items() if times == 2] == ["guides"]
    assert len(set(entries)) == 24


def test_every_release_is_told_to_operator_and_owner() -> None:
    for release in MANIFEST:
        assert len(release.details) > 80 and release.owner_note.endswith("."), release.version
        assert len({release.title, release.details, release.owner_note}) == 3


def test_what_a_release_brings_is_checked_from_that_release_on() -> None:
    """Each `since` of services, routes and files is the version of the release that installs the unit."""
    versions = {str(release.version) for release in MANIFEST}
    settings = FLEET.settings
    assert {item.since for item in (*settings.services, *settings.routes, *settings.rendered) if item.since} <= versions
    brought = {
        key.removeprefix("unit:"): str(release.version)
        for release in MANIFEST
        for entry in release.steps
        for key in CATALOG[entry.name].keys(entry.arguments)
        if key.startswith("unit:tenant-")
    }
    assert {service.unit: service.since for service in settings.services if service.since} == brought


def test_lab_hosts_hold_every_package_because_they_have_no_index() -> None:
    hosted = {package for release in load_releases(FLEET.root).values() for package in release.packages}
    assert {*BOOTSTRAP.PACKAGES, *hosted} == set(FLEET.settings.lab.packages)


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


def test_the_chat_model_is_pinned_to_hosts_from_its_release_on() -> None:
    def config(version: str) -> Any:
        return yaml.safe_load(rendered_at("maple", Version.parse(version))["config"].content)

    assert "provider_routing" not in config("2026.10.22.8")
    first, last = config("2026.10.22.9"), config("2026.10.23.2")
    assert (first["model"]["default"], first["provider_routing"]["only"]) == (
        "tenantry-chat-1",
        ["north.models.example"],
    )
    assert last["provider_routing"]["only"] == ["north.models.example", "south.models.example"]
    assert first["platforms"] == last["platforms"] == config("2026.10.22")["platforms"]


def test_personality_patches_find_what_they_edit() -> None:
    head = rendered_at("maple", MANIFEST.head)["personality"].content.decode()
    for words in (
        "plain-spoken assistant",
        "Be friendly without ceremony",
        "Guess. If you do not know",
        "## The inbox",
    ):
        assert head.count(words) == 1, words


@pytest.mark.parametrize("slug", FLEET.tenants)
def test_every_step_says_what_it_leaves_and_every_version_can_be_folded(slug: str) -> None:
    workspace, phases = open_workspace(ROOT), Phases.load(ROOT)
    tenant = FLEET.tenants[slug]
    states = [
        expected_state(workspace, phases, tenant, version)
        for version in (None, *(release.version for release in MANIFEST))
    ]
    assert [len(state) for state in states] == sorted(len(state) for state in states)
    owners = {item.owner.name for item in states[-1].values() if item.owner.kind is OwnerKind.STEP}
    patches = {name for name, step in CATALOG.items() if isinstance(step, PatchStep) and not step.expects}
    expecting = {owner.partition("(")[0] for owner in owners}
    other_trades = {step.name for step in CATALOG.values() if not step.applies_to(tenant)}
    # Patches of the personality leave nothing but the rendered file, which is its template's.
    assert expecting | patches | other_trades == set(CATALOG)
    assert all(CATALOG[name].file == "personality" for name in patches)  # type: ignore[attr-defined]
