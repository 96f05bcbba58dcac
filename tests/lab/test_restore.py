"""Restores on real hosts: what comes back is what was, and whatever goes wrong, the owner has a whole tenant."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from engine.backups.store import StoredArchive, manifest_path
from engine.errors import ExitCode
from engine.records import RunResult
from engine.updater.events import Event, Phase
from tests.lab.light_fleet import HASTY, LightFleet
from tests.lab.restores import HEAD, back_up, fill, is_alive, leftovers, restored, seen

CHANGE = """
set -e
cd /srv/light
rm diary/deep/entry
echo changed > diary/noise
chown root diary
echo new > stray
echo blob > cache/blob
ln -sf /dev/null /etc/systemd/system/light-stray.service
echo bye > /etc/light/greeting
python3 -c "import sqlite3; c = sqlite3.connect('ledger.db'); c.execute('DELETE FROM entries'); c.commit()"
"""


@pytest.fixture
def lived(maple: LightFleet) -> LightFleet:
    """A tenant at the head with something to lose."""
    maple.run("maple", "rm -rf /etc/light /etc/systemd/system/light-stray.service; userdel keeper 2>/dev/null || true")
    shutil.rmtree(maple.state / "backups", ignore_errors=True)
    assert maple.converge("maple").error is None
    fill(maple)
    return maple


# What comes back


def test_a_restore_in_place_brings_back_every_file_row_owner_and_mode(lived: LightFleet):
    before, archive = seen(lived), back_up(lived)
    lived.run("maple", CHANGE)
    lived.say("maple", "lost", age_seconds=30)
    outcome = restored(lived)
    assert (outcome.error, outcome.result, outcome.to_version) == (None, RunResult.RESTORED, HEAD)
    assert seen(lived) == before
    assert lived.run("maple", "cat /srv/light/cache/blob") == "blob\n", "what no archive holds stays"
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""
    kept = lived.run("maple", f"cat /var/lib/tenantry/recovery/{outcome.run}-restore/moved/*/stray")
    assert (kept, outcome.archive) == ("new\n", archive.archive)


def test_sidecars_of_the_old_databases_go_with_them(lived: LightFleet):
    before = seen(lived)
    back_up(lived)
    lived.run(
        "maple",
        "cd /srv/light; for end in wal shm journal; do head -c 5000 /dev/urandom > ledger.db-$end; done; "
        "systemctl kill -s KILL light-gateway",
    )
    assert restored(lived).error is None
    assert seen(lived)["rows"] == before["rows"]
    assert lived.run("maple", "ls /srv/light/ledger.db-* 2>/dev/null || true") == ""


def test_owners_are_those_of_the_name_and_without_one_those_of_the_number(lived: LightFleet):
    number = int(lived.run("maple", "id -u keeper"))
    back_up(lived)
    lived.run("maple", "userdel keeper; useradd --system --uid 4321 keeper")
    assert restored(lived).error is None
    assert lived.run("maple", "stat -c %u /srv/light/diary/deep/entry").strip() == "4321"
    lived.run("maple", "userdel keeper")
    assert restored(lived).error is None
    assert int(lived.run("maple", "stat -c %u /srv/light/diary/deep/entry")) == number


def test_an_older_archive_meets_the_newer_installation_and_converges_forward(maple: LightFleet):
    shutil.rmtree(maple.state / "backups", ignore_errors=True)
    everything = (maple.root / "releases.yaml").read_text()
    maple.write_releases(
        ("2026.10.1", [{"greeting": {"name": "hello", "text": "Hello 'you' & \"{{ all }}\" $(id) %}"}}])
    )
    assert maple.converge("maple").error is None
    fill(maple)
    back_up(maple)
    (maple.root / "releases.yaml").write_text(everything)
    assert maple.converge("maple").error is None
    maple.run("maple", "rm -r /srv/light/diary")
    outcome = restored(maple)
    assert (outcome.error, outcome.from_version, outcome.to_version) == (None, "2026.10.1", HEAD)
    assert maple.marker("maple") == HEAD and is_alive(maple)
    assert maple.run("maple", "cat /srv/light/diary/deep/entry") == "first entry\n"
    assert "please" in maple.run("maple", "cat /srv/light/SOUL.md")
    assert '"1.1"' in maple.run("maple", "curl -s http://127.0.0.1:8642/health")
    assert maple.run("maple", "readlink /opt/light/current").strip() == "/opt/light/1.1"


def test_onto_a_fresh_host_the_tenant_is_what_it_was_then(lived: LightFleet):
    before, boot = seen(lived), lived.run("maple", "cat /etc/machine-id")
    back_up(lived)
    outcome = restored(lived, onto=True)
    assert (outcome.error, outcome.result) == (None, RunResult.RESTORED)
    assert lived.run("maple", "cat /etc/machine-id") != boot
    after = seen(lived)
    assert after["rows"] == before["rows"]
    # The account of the diary is nobody's here: its number stands for it.
    differences = {
        path for path in before["files"] | after["files"] if before["files"].get(path) != after["files"].get(path)
    }
    assert all(path.startswith("/srv/light/diary") for path in differences)
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""


def test_a_dry_run_tells_every_difference_and_touches_nothing(lived: LightFleet):
    back_up(lived)
    lived.run("maple", CHANGE)
    before = lived.run("maple", "find /srv/light /etc/light /var/lib/tenantry -printf '%p %i %T@\\n' | sort")
    with lived.workspace().locks.hold(lived.workspace().fleet.tenants["maple"].subject, job="test", run="r"):
        process = lived.cli("restore", "maple", "--dry-run", "--json")
        out, _ = process.communicate()
    assert process.returncode == 0
    found = json.loads(out)
    assert [item["path"] for item in found["added"]] == ["/srv/light/diary/deep/entry"]
    assert {"/srv/light/stray", "/etc/systemd/system/light-stray.service"} <= {
        item["path"] for item in found["removed"]
    }
    changed = {item["path"]: item for item in found["changed"]}
    assert {"/srv/light/diary", "/srv/light/diary/noise", "/etc/light/greeting", "/srv/light/ledger.db"} <= set(changed)
    assert changed["/etc/light/greeting"]["now"] != changed["/etc/light/greeting"]["then"]
    assert not any("cache" in item["path"] for item in found["removed"])
    after = lived.run("maple", "find /srv/light /etc/light /var/lib/tenantry -printf '%p %i %T@\\n' | sort")
    assert after == before


def test_one_path_of_the_state_comes_back_alone(lived: LightFleet):
    back_up(lived)
    lived.run("maple", CHANGE)
    outcome = restored(lived, path="/srv/light/diary/deep")
    assert (outcome.error, outcome.result, outcome.restarted) == (None, RunResult.RESTORED, True)
    assert lived.run("maple", "cat /srv/light/diary/deep/entry") == "first entry\n"
    assert lived.run("maple", "cat /srv/light/diary/noise /srv/light/stray") == "changed\nnew\n"
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""


def test_one_path_of_the_configuration_leaves_the_gateway_running(lived: LightFleet):
    back_up(lived)
    lived.run("maple", CHANGE)
    pid = lived.run("maple", "systemctl show -P MainPID light-gateway")
    outcome = restored(lived, path="/etc/light/greeting")
    assert (outcome.error, outcome.restarted) == (None, False)
    assert lived.run("maple", "cat /etc/light/greeting") == "hello\n"
    assert lived.run("maple", "systemctl show -P MainPID light-gateway") == pid
    assert leftovers(lived) == "" and lived.converge("maple").result is RunResult.UNCHANGED


def test_a_person_may_take_a_restore_back(lived: LightFleet):
    back_up(lived)
    lived.run("maple", CHANGE)
    before = seen(lived)
    assert restored(lived).error is None
    process = lived.cli("rollback", "maple")
    _, error = process.communicate()
    assert process.returncode == 0, error
    assert seen(lived) == before and is_alive(lived) and lived.marker("maple") == HEAD


# What is refused before anything is touched


def untouched(fleet: LightFleet, words: str, **wish: object) -> None:
    """A restore is refused with these words, and the tenant is as it was."""
    before, pid = seen(fleet), fleet.run("maple", "systemctl show -P MainPID light-gateway")
    outcome = restored(fleet, **wish)  # type: ignore[arg-type]
    assert outcome.exit_code is not ExitCode.DONE and words in str(outcome.error), outcome.error
    assert seen(fleet) == before and leftovers(fleet) == ""
    assert fleet.run("maple", "systemctl show -P MainPID light-gateway") == pid


def test_damaged_foreign_and_unfitting_archives_are_refused(lived: LightFleet):
    stored = back_up(lived)
    lived.run("maple", CHANGE)
    whole = stored.path.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2] ^= 0xFF
    stored.path.write_bytes(damaged)
    untouched(lived, "not whole", archive=stored.archive)
    stored.path.write_bytes(whole[:-200])
    untouched(lived, "is not verified", archive=stored.archive)
    untouched(lived, "no verified archive")
    stored.path.write_bytes(whole)
    digest = stored.manifest.digest if stored.manifest else ""
    change_manifest(stored, digest="sha256:" + "0" * 64)
    untouched(lived, "its manifest says")
    change_manifest(stored, digest=digest, slug="cedar")
    untouched(lived, "not verified", archive=stored.archive)
    change_manifest(stored, slug="maple")
    untouched(lived, "there is no archive", archive="20200101T000000Z")
    untouched(lived, "in none of the archive's contents", path="/etc/shadow")


def change_manifest(stored: StoredArchive, **changes: str) -> None:
    path = manifest_path(stored.path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_versions_that_this_manifest_does_not_have_are_refused(lived: LightFleet):
    back_up(lived)
    lived.write_releases(("2026.10.1", ["polite"]))
    untouched(lived, "above this manifest's head")
    lived.write_releases(("2026.10.1", ["polite"]), ("2026.10.4", ["polite"]))
    untouched(lived, "which this manifest does not have")
    lived.write_releases(("2026.10.3", ["polite"]))
    untouched(lived, "edited since")


def test_without_room_it_is_refused_with_figures(lived: LightFleet):
    back_up(lived)
    lived.change_settings(recovery={"reserve_mebibytes": 1 << 30})
    untouched(lived, "MiB needed beside the live files")


NO_ROOM = """
printf '#!/bin/sh\\necho No space left on device >&2\\nexit 2\\n' > /usr/local/bin/tar
chmod +x /usr/local/bin/tar
"""


def test_an_archive_that_cannot_be_unpacked_touches_nothing(lived: LightFleet):
    back_up(lived)
    lived.run("maple", NO_ROOM)
    try:
        untouched(lived, "No space left")
    finally:
        lived.run("maple", "rm /usr/local/bin/tar")


def test_the_engine_s_directory_on_another_file_system_is_refused(lived: LightFleet):
    back_up(lived)
    lived.run("maple", "cp -a /srv/light /srv/copy; mount -t tmpfs tmpfs /srv/light; cp -a /srv/copy/. /srv/light/")
    try:
        outcome = restored(lived)
        assert "another file system" in str(outcome.error)
    finally:
        lived.run("maple", "umount -l /srv/light; rm -r /srv/copy; systemctl restart light-gateway")


def test_a_database_that_is_not_sound_in_the_archive_touches_nothing(lived: LightFleet):
    stored = back_up(lived)
    assert stored.manifest
    document = json.loads(manifest_path(stored.path).read_text())
    document["databases"]["/srv/light/ledger.db"]["tables"]["entries"] = 499
    manifest_path(stored.path).write_text(json.dumps(document))
    untouched(lived, "has 500 rows, the archive's manifest says 499")


# What goes wrong afterwards


@pytest.mark.parametrize("fault", ["crash", "no-channel"])
def test_a_restored_tenant_that_does_not_come_to_life_is_put_back(lived: LightFleet, fault: str):
    lived.run("maple", f"echo {fault} > /srv/light/fault")
    lived.change_settings(**HASTY)
    back_up(lived)
    lived.run("maple", "rm /srv/light/fault")
    lived.run("maple", CHANGE)
    before = seen(lived)
    outcome = restored(lived)
    assert (outcome.result, outcome.exit_code) == (RunResult.ROLLED_BACK, ExitCode.FAILED), outcome.error
    assert seen(lived) == before
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""


def test_a_step_that_fails_on_the_way_forward_puts_the_old_tree_back(lived: LightFleet):
    back_up(lived)
    lived.run("maple", CHANGE)
    before = seen(lived)
    releases = lived.root / "releases.yaml"
    present = yaml.safe_load(releases.read_text())["releases"]
    lived.write_releases(("2026.10.9", [{"script": {"command": "exit 3", "effect": "/srv/light/effect"}}]))
    more = yaml.safe_load(releases.read_text())["releases"]
    releases.write_text(yaml.safe_dump({"releases": present + more}))
    outcome = restored(lived)
    assert outcome.result is RunResult.ROLLED_BACK and "step script failed" in str(outcome.error)
    assert seen(lived) == before
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""


def test_a_conversation_is_not_cut_off(lived: LightFleet):
    back_up(lived)
    lived.change_settings(quiesce={"polls": 2, "silence_seconds": 60})

    def talk(event: Event) -> None:
        if event.phase is Phase.QUIESCE:
            lived.say("maple")

    pid = lived.run("maple", "systemctl show -P MainPID light-gateway")
    outcome = restored(lived, report=talk)
    assert outcome.exit_code is ExitCode.DEFERRED
    assert not lived.owed("maple")["restart"]
    assert lived.run("maple", "systemctl show -P MainPID light-gateway") == pid and leftovers(lived) == ""


def test_a_message_between_the_gate_and_the_stop_is_not_cut_off(lived: LightFleet):
    back_up(lived)
    said: list[str] = []

    def talk(event: Event) -> None:
        if event.phase is Phase.EXCHANGE and not said:
            said.append("now")
            lived.say("maple", "one more thing")

    outcome = restored(lived, report=talk)
    assert outcome.error is None and any("between the gate and the stop" in event.message for event in lived.events)
    assert lived.run("maple", "ls /var/lib/tenantry/recovery").split()[-1] == f"{outcome.run}-restore"
    assert is_alive(lived) and leftovers(lived) == ""
