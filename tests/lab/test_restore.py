"""Restores on real hosts: what comes back is what was, and whatever goes wrong, the owner has a whole tenant."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import yaml

from engine.backups.store import StoredArchive, manifest_path
from engine.errors import ExitCode
from engine.records import RunResult
from engine.updater.events import Event, Phase
from tests.lab.light_fleet import ARMED_WITHOUT_SET, HASTY, LightFleet
from tests.lab.restores import HEAD, back_up, fill, is_alive, leftovers, restored, seen
from tests.lab.waiting import until

CLEAN = """
systemctl stop light-helper 2>/dev/null
rm -rf /etc/light /etc/systemd/system/light-stray.service /etc/systemd/system/light-helper.service
systemctl daemon-reload
userdel keeper 2>/dev/null || true
"""

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

HOLD = """
echo '{"head": "2026.10.3", "run": "r0", "at": 1, "reason": "for now", "by": "a person"}' > /var/lib/tenantry/held.json
echo '{"restart": ["something else"]}' > /var/lib/tenantry/owed.json
"""

# It has nothing open that a restore replaces.
HELPER = """
set -e
cat > /etc/systemd/system/light-helper.service <<'END'
[Service]
ExecStart=/bin/sh -c 'cat /etc/light/greeting > /run/light-greeting; exec sleep infinity'
END
systemctl daemon-reload
systemctl start light-helper
"""

DISASTER = f"""
head -c 9000 /dev/urandom > /srv/light/state.db
rm -f /srv/light/state.db-*
{ARMED_WITHOUT_SET}
"""


@pytest.fixture
def lived(maple: LightFleet) -> LightFleet:
    """A tenant at the head with something to lose."""
    maple.run("maple", CLEAN)
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
    assert f"tenantry rollback maple --to {outcome.run}-restore" in outcome.messages[-1]
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


def at_the_first_version(maple: LightFleet) -> tuple[str, dict[str, Any]]:
    """A tenant with an archive of the first version; all of the releases, which are to be put back, and `seen`."""
    shutil.rmtree(maple.state / "backups", ignore_errors=True)
    everything = (maple.root / "releases.yaml").read_text()
    maple.write_releases(
        ("2026.10.1", [{"greeting": {"name": "hello", "text": "Hello 'you' & \"{{ all }}\" $(id) %}"}}])
    )
    assert maple.converge("maple").error is None
    fill(maple)
    before = seen(maple)
    back_up(maple)
    return everything, before


def test_an_older_archive_meets_the_newer_installation_and_converges_forward(maple: LightFleet):
    everything, _ = at_the_first_version(maple)
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


def without_owners(found: dict[str, Any]) -> dict[str, Any]:
    """What `seen` gives, with all but owner and group of the diary: on a new host its account is nobody's."""
    files = {
        path: [entry[0], *entry[3:]] if path.startswith("/srv/light/diary") else entry
        for path, entry in found["files"].items()
    }
    return {**found, "files": files}


def test_onto_a_fresh_host_the_tenant_is_what_it_was_then_and_goes_on_to_the_head(maple: LightFleet):
    everything, before = at_the_first_version(maple)
    boot = maple.run("maple", "cat /etc/machine-id")
    then: list[dict[str, Any]] = []

    def look(event: Event) -> None:
        # The way forward begins with this question; the archive is in its place, and nothing else happened yet.
        if event.phase is Phase.PROBE and any(earlier.phase is Phase.EXCHANGE for earlier in maple.events) and not then:
            assert maple.marker("maple") == "2026.10.1"
            then.append(seen(maple))

    (maple.root / "releases.yaml").write_text(everything)
    outcome = restored(maple, onto=True, report=look)
    assert (outcome.error, outcome.result) == (None, RunResult.RESTORED)
    assert maple.run("maple", "cat /etc/machine-id") != boot
    assert [without_owners(found) for found in then] == [without_owners(before)]
    after = seen(maple)
    kept = {path for path in before["files"] if path.startswith(("/srv/light/diary", "/etc/light"))}
    assert len(kept) > 5 and kept <= set(after["files"])
    now, was = without_owners(after)["files"], without_owners(before)["files"]
    assert {path: now[path] for path in kept} == {path: was[path] for path in kept}
    assert after["rows"] == before["rows"]
    assert is_alive(maple) and maple.marker("maple") == HEAD and leftovers(maple) == ""


def test_a_new_server_that_the_archive_does_not_come_onto_is_called_what_it_is(lived: LightFleet):
    lived.run("maple", "echo crash > /srv/light/fault")
    archive = back_up(lived).archive
    outcome = restored(lived, onto=True)
    assert (outcome.result, outcome.exit_code) == (RunResult.FAILED, ExitCode.FAILED)
    assert "as it was before" not in str(outcome.error) and "a new installation without" in str(outcome.error)
    assert f"tenantry restore maple --archive {archive} --confirm maple" in str(outcome.error)
    assert is_alive(lived) and "/srv/light/diary" not in seen(lived)["files"]


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
    # The archive has a hard link of it whose content lies elsewhere.
    lived.run("maple", "echo shared > /srv/light/a-first; ln /srv/light/a-first /srv/light/diary/deep/same")
    back_up(lived)
    lived.run("maple", CHANGE + HOLD)
    outcome = restored(lived, path="/srv/light/diary/deep")
    assert (outcome.error, outcome.result, outcome.restarted) == (None, RunResult.RESTORED, True)
    assert lived.run("maple", "cat /srv/light/diary/deep/entry") == "first entry\n"
    assert lived.run("maple", "cat /srv/light/diary/noise /srv/light/stray") == "changed\nnew\n"
    assert lived.run("maple", "cat /srv/light/diary/deep/same") == "shared\n"
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""
    # It is no answer to why somebody holds the tenant, nor to what else is owed.
    assert "a person" in lived.run("maple", "cat /var/lib/tenantry/held.json")
    assert lived.owed("maple")["restart"] == ["something else"]


def test_one_path_of_the_configuration_leaves_the_gateway_running(lived: LightFleet):
    lived.run("maple", HELPER)
    back_up(lived)
    lived.run("maple", CHANGE + "systemctl restart light-helper; echo drifted >> SOUL.md")
    pid = lived.run("maple", "systemctl show -P MainPID light-gateway")
    outcome = restored(lived, path="/etc/light/greeting")
    assert (outcome.error, outcome.restarted) == (None, False)
    assert lived.run("maple", "cat /etc/light/greeting") == "hello\n"
    assert lived.run("maple", "cat /run/light-greeting") == "hello\n", "who reads it has read it again"
    assert lived.run("maple", "systemctl show -P MainPID light-gateway") == pid
    assert "drifted" in lived.run("maple", "cat /srv/light/SOUL.md"), "that is a converge's, which restarts for it"
    assert leftovers(lived) == "" and lived.converge("maple").restarted


def test_the_gateway_starts_from_its_own_unit_when_that_is_restored(lived: LightFleet):
    back_up(lived)
    unit = "/etc/systemd/system/light-gateway.service"
    lived.run("maple", f"echo '# drifted' >> {unit}; systemctl daemon-reload; systemctl restart light-gateway")
    until(lambda: is_alive(lived), "the gateway runs from the other unit")
    pid = lived.run("maple", "systemctl show -P MainPID light-gateway")
    outcome = restored(lived, path=unit)
    assert (outcome.error, outcome.restarted) == (None, True)
    assert lived.run("maple", "systemctl show -P MainPID light-gateway") != pid and is_alive(lived)
    assert "drifted" not in lived.run("maple", f"cat {unit}")
    assert lived.converge("maple").result is RunResult.UNCHANGED


def test_what_a_tenant_cannot_say_of_itself_any_more_stops_no_restore(lived: LightFleet):
    before = seen(lived)
    back_up(lived)
    lived.run("maple", CHANGE + "echo garbled > /var/lib/tenantry/version")
    untouched(lived, "the marker is unreadable", path="/srv/light/diary/deep")
    lived.run("maple", DISASTER)
    outcome = restored(lived)
    assert (outcome.error, outcome.from_version, outcome.to_version) == (None, HEAD, HEAD)
    said = " ".join(event.message for event in lived.events)
    for words in ("the marker is unreadable", "it counts as silent", "cannot be put back"):
        assert words in said
    assert seen(lived) == before
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""


def test_a_person_may_take_a_restore_back(lived: LightFleet):
    back_up(lived)
    lived.run("maple", CHANGE)
    before = seen(lived)
    outcome = restored(lived)
    assert outcome.error is None
    lived.say("maple", "tuesday")
    first, last = lived.run("maple", "ls /var/lib/tenantry/recovery").split()
    refused = lived.cli("rollback", "maple", "--to", first)
    _, error = refused.communicate()
    assert refused.returncode == ExitCode.FAILED and f"tenantry rollback maple --to {last}" in error
    process = lived.cli("rollback", "maple", "--json")
    output, error = process.communicate()
    assert process.returncode == 0, error
    assert seen(lived) == before and is_alive(lived) and lived.marker("maple") == HEAD
    (document,) = json.loads(output)["tenants"]
    (newer,) = [message for message in document["messages"] if "newer messages" in message]
    assert "with 1 newer messages" in newer
    (aside,) = lived.run("maple", "ls -d /var/lib/tenantry/aside/*/state/*/state.db").split()
    assert aside.removesuffix("/state.db") in newer
    assert "tuesday" in lived.run("maple", f"sqlite3 {aside} 'SELECT content FROM messages'")
    assert any("/etc/light in " in message for message in document["messages"])


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


def test_one_path_does_not_come_into_the_middle_of_a_change(lived: LightFleet):
    back_up(lived)
    lived.run("maple", 'echo \'{"switches": {"/opt/light/current": "/opt/light/1.0"}}\' > /var/lib/tenantry/owed.json')
    untouched(lived, "an upgrade of the runtime is owed", path="/srv/light/diary/deep")
    lived.run("maple", "rm /var/lib/tenantry/owed.json")
    add_release(lived, "2026.10.9", {"script": {"command": "exit 3", "effect": "/srv/light/effect"}})
    begun = lived.converge("maple")
    assert begun.error
    untouched(lived, f"run {begun.run} has begun a change", path="/srv/light/diary/deep")


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
    # Over a step that nothing can take back, too: the whole old tree is there.
    add_release(lived, "2026.10.9", "migrate", {"script": {"command": "exit 3", "effect": "/srv/light/effect"}})
    outcome = restored(lived)
    assert outcome.result is RunResult.ROLLED_BACK and "step script failed" in str(outcome.error)
    assert seen(lived) == before
    assert is_alive(lived) and lived.marker("maple") == HEAD and leftovers(lived) == ""


def add_release(fleet: LightFleet, version: str, *steps: Any) -> None:
    releases = fleet.root / "releases.yaml"
    present = yaml.safe_load(releases.read_text())["releases"]
    fleet.write_releases((version, steps))
    more = yaml.safe_load(releases.read_text())["releases"]
    releases.write_text(yaml.safe_dump({"releases": present + more}))


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
