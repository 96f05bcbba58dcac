"""``tenantry backup`` and ``backups`` where no host is needed."""

from __future__ import annotations

import datetime
from dataclasses import replace

import pytest

from engine.backups.run import BackupOutcome
from engine.backups.store import ArchiveStore, StoredArchive
from engine.cli import backup as command
from engine.errors import Unreachable
from engine.records import RunResult
from engine.subject import Subject
from engine.updater.outcome import failed
from tests.cli.conftest import Tenantry, valid
from tests.local.test_archive_store import MANIFEST

FIRST = datetime.datetime(2026, 11, 1, 1, 30, tzinfo=datetime.UTC)


@pytest.fixture
def archives(tenantry: Tenantry) -> list[StoredArchive]:
    """Fifteen archives of maple, one of them not verified."""
    store = ArchiveStore(tenantry.state_directory / "backups", Subject("tenant", "maple"))
    store.prepare()
    items = []
    for day in range(15):
        archive = store.free_id(FIRST + datetime.timedelta(days=day))
        store.partial_of(archive).write_bytes(b"data" if day != 3 else b"other data")
        items.append(store.publish(replace(MANIFEST, archive=archive)))
    return items


def test_the_archives_are_listed_with_age_size_version_and_whether_they_are_verified(
    tenantry: Tenantry, archives: list[StoredArchive]
):
    document = tenantry.document("backups", "backups")
    assert [(entry["slug"], len(entry["archives"])) for entry in document["tenants"]] == [("maple", 15), ("harbor", 0)]
    assert [item["verified"] for item in document["tenants"][0]["archives"]].count(False) == 1
    printed = tenantry("backups", "maple", "harbor").out
    assert "20261101T013000Z" in printed and "2026.10.22" in printed and "harbor: no archive" in printed
    assert "it has 10 bytes, its manifest says 4" in printed


def test_a_dry_run_shows_what_the_next_success_would_remove_and_touches_nothing(
    tenantry: Tenantry, archives: list[StoredArchive]
):
    document = tenantry.document("backup-dry-run", "backup", "--all", "--dry-run")
    maple, harbor = document["tenants"]
    assert document["kept"] == 14 and (maple["archives"], maple["verified"]) == (15, 14)
    assert [item["archive"] for item in maple["would_remove"]] == ["20261101T013000Z"]
    assert harbor["would_remove"] == []
    assert "20261101T013000Z" in tenantry("backup", "maple", "--dry-run").out
    assert all(item.path.exists() for item in archives)


def test_the_paths_are_listed_without_a_choice_of_tenants(tenantry: Tenantry):
    settings = tenantry.root / "inventory/fleet.yaml"
    settings.write_text(
        settings.read_text() + "contents:\n  - {name: home, path: /srv/home, kind: state, exclude: [logs]}\n"
    )
    document = tenantry.document("backup-list-paths", "backup", "--list-paths")
    assert {"name": "home", "kind": "state", "path": "/srv/home", "exclude": ["logs"]} in document["contents"]
    assert {"/srv/SOUL.md", "/var/lib/tenantry/version"} <= {item["path"] for item in document["contents"]}
    printed = tenantry("backup", "--list-paths").out
    assert "/srv/home" in printed and "logs" in printed


def test_contents_that_no_archive_could_hold_are_invalid_input(tenantry: Tenantry):
    settings = tenantry.root / "inventory/fleet.yaml"
    contents = "contents: [{name: a, path: /srv/a, kind: state, exclude: [x]}, {name: b, path: /srv/a/x, kind: data}]\n"
    settings.write_text(settings.read_text() + contents)
    for arguments in (("--list-paths",), ("maple",)):
        result = tenantry("backup", *arguments)
        assert result.code == 2 and "left out by the excludes" in result.err


def test_a_backup_without_a_choice_is_a_usage_error(tenantry: Tenantry):
    assert tenantry("backup").code == 2


def test_all_leaves_out_tenants_whose_daily_backup_is_off_and_a_name_does_not(tenantry: Tenantry):
    registry = tenantry.root / "inventory/tenants.yaml"
    registry.write_text(registry.read_text().replace("daily_backup: true", "daily_backup: false", 1))
    slugs = [
        [entry["slug"] for entry in tenantry.document("backup-dry-run", "backup", *chosen, "--dry-run")["tenants"]]
        for chosen in (("--all",), ("maple",))
    ]
    assert slugs == [["harbor"], ["maple"]]
    result = tenantry("backup", "--role", "test", "--dry-run")
    assert result.code == 2 and "no chosen tenant has daily_backup" in result.err


def test_the_backup_document(archives: list[StoredArchive]):
    good = BackupOutcome(
        "maple", RunResult.BACKED_UP, run="r", messages=("m",), stored=archives[0], removed=("20261001T013000Z",)
    )
    document = valid("backup", command.document([good, failed("harbor", Unreachable("no answer", where="harbor"))]))
    assert [entry["archive"] is None for entry in document["tenants"]] == [False, True]


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (30_000, "30.0 KB"), (5 * 10**9, "5.0 GB")])
def test_sizes_for_people(count: int, text: str):
    assert command.size(count) == text
