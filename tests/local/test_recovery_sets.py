"""Recovery sets on this machine: what is taken, what goes back, and that a death at any point changes neither."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.recovery.assembly import assembled
from tests.local.crashes import dies_at
from tests.local.recovering import Tenant, modules


@pytest.fixture
def tenant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tenant:
    return Tenant.create(tmp_path, monkeypatch)


LIVE = ("etc", "units", "absent", "current", "home/version", "home/applied.json", "home/owed.json")


def look_of(tenant: Tenant, *names: str) -> dict[str, Any]:
    """What is there, with contents, modes and owners, without times."""
    script = "RESULT = {name: trees.describe(name) for name in PARAMETERS}"
    found = tenant.run(assembled(script), [str(tenant.base / name) for name in names or LIVE])
    for entries in found.values():
        for entry in entries:
            entry.pop("mtime_ns")
    return dict(found)


def update(tenant: Tenant) -> None:
    """What a release may do to a tenant."""
    base = tenant.base
    (base / "etc/app/main.conf").write_text("new\n")
    (base / "etc/app/main.conf").chmod(0o600)
    (base / "etc/app/link").unlink()
    (base / "etc/app/link").write_text("a file now\n")
    shutil.rmtree(base / "etc/app/sub")
    (base / "etc/app/sub").symlink_to("/etc")
    (base / "etc/app/added/deep").mkdir(parents=True)
    (base / "etc/app/added/deep/file").write_text("new\n")
    (base / "units/helper.service").write_text("[Unit]\nDescription=new\n")
    (base / "units/helper-timer.timer").write_text("[Timer]\n")
    (base / "there/helper-timer.timer").write_text("enabled\n")
    (base / "absent").mkdir()
    (base / "absent/file").write_text("new\n")
    tenant.link.unlink()
    tenant.link.symlink_to("/opt/new")
    (tenant.home / "version").write_text("2026.10.2\n")
    (tenant.home / "applied.json").write_text('{"2026.10.2": "sha256:x"}\n')
    (tenant.home / "owed.json").write_text('{"note": {"version": "2026.10.2", "text": "t", "sending": true}}\n')


def change_form(tenant: Tenant) -> None:
    tenant.execute("ALTER TABLE messages ADD COLUMN mood TEXT")
    (tenant.state / "memory").write_text("in the new form")
    (tenant.state / "new-file").touch()


# What goes back


def test_configuration_links_marker_and_digests_go_back_and_what_was_there_is_aside(tenant: Tenant):
    before = look_of(tenant)
    assert tenant.take("r1") == {"set": "r1", "irreversible": []}
    tenant.take_state("r1")
    update(tenant)
    tenant.say("newer")
    result = tenant.undo("r1")
    assert (result["outcome"], result["state"], result["problems"]) == ("undone", "kept", [])
    assert look_of(tenant) == before
    aside = Path(result["aside"]) / "files" / str(tenant.base).lstrip("/")
    assert (aside / "etc/app/main.conf").read_text() == "new\n"
    assert (aside / "etc/app/added/deep/file").read_text() == "new\n"
    assert (aside / "etc/app/sub").readlink() == Path("/etc")
    assert (aside / "absent/file").exists() and (aside / "units/helper-timer.timer").exists()
    assert json.loads((tenant.home / "held.json").read_text())["head"] == "2026.10.2"
    assert not (tenant.home / "recovery/open.json").exists()


def test_units_of_the_change_end_and_those_of_before_run_from_their_old_files(tenant: Tenant):
    tenant.take("r1")
    update(tenant)
    tenant.undo("r1")
    told = tenant.told()
    assert "disable --now helper-timer.timer" in told
    assert told.index("stop gateway.service") < told.index("disable --now helper-timer.timer")
    assert told.index("daemon-reload") < told.index("reload-or-restart helper.service")
    assert told[-1] == "start gateway.service"


def test_a_set_of_nothing_changed_changes_nothing(tenant: Tenant):
    before = look_of(tenant)
    tenant.take("r1")
    result = tenant.undo("r1")
    assert (result["changed"], result["aside"]) == ([], None)
    assert look_of(tenant) == before
    assert not any(line.startswith("reload-or-restart") for line in tenant.told())


def test_state_goes_back_where_its_form_changed_and_newer_messages_are_counted_and_kept(tenant: Tenant):
    tenant.take("r1")
    tenant.take_state("r1")
    before = look_of(tenant, "state")
    update(tenant)
    change_form(tenant)
    (tenant.state / "cache/kept").touch()
    for text in ("one", "two"):
        tenant.execute(f"INSERT INTO messages VALUES ('{text}', 2000, 'good')")
    result = tenant.undo("r1")
    assert (result["state"], result["newer_messages"]) == ("put back", 2)
    assert (tenant.state / "cache/kept").exists()
    (tenant.state / "cache/kept").unlink()
    assert look_of(tenant, "state") == before
    kept = list(Path(result["aside"]).glob("state/*/state.db"))
    assert len(kept) == 1 and kept[0].with_name("new-file").exists()


@pytest.mark.parametrize("content", [b"", b"garbage" * 1000])
def test_state_goes_back_where_the_database_cannot_be_read_any_more(tenant: Tenant, content: bytes):
    tenant.take("r1")
    tenant.take_state("r1")
    good = tenant.database.read_bytes()
    tenant.database.write_bytes(content)
    assert tenant.undo("r1")["state"] == "put back"
    assert tenant.database.read_bytes() == good


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("ANALYZE", "kept"),
        ("CREATE TABLE made_when_needed (name TEXT)", "kept"),
        ("DROP TABLE other", "put back"),
        ("ALTER TABLE other ADD COLUMN more TEXT", "put back"),
        ("PRAGMA user_version = 5", "put back"),
    ],
)
def test_only_what_the_database_had_then_decides_whether_its_form_changed(tenant: Tenant, statement: str, state: str):
    tenant.execute("CREATE TABLE other (name TEXT)", "CREATE INDEX by_time ON messages (timestamp)")
    tenant.take("r1")
    tenant.take_state("r1")
    tenant.execute(statement)
    assert tenant.undo("r1")["state"] == state


def test_the_copy_of_an_earlier_engine_goes_back_where_its_one_digest_is_another(tenant: Tenant):
    for run, statement, state in (("r1", "SELECT 1", "kept"), ("r2", "CREATE TABLE other (name TEXT)", "put back")):
        tenant.take(run)
        tenant.take_state(run)
        file = tenant.set_of(run) / "set.json"
        description = json.loads(file.read_text())
        del description["state"]["objects"]
        file.write_text(json.dumps(description))
        tenant.execute(statement)
        assert tenant.undo(run)["state"] == state


def test_a_note_that_was_sent_since_is_not_owed_again(tenant: Tenant):
    note = {"version": "2026.10.1", "text": "t", "sending": False}
    (tenant.home / "owed.json").write_text(json.dumps({"restart": ["x"], "note": note}))
    tenant.take("r1")
    (tenant.home / "owed.json").write_text(json.dumps({"note": {**note, "sending": True}}))
    tenant.undo("r1")
    owed = json.loads((tenant.home / "owed.json").read_text())
    assert owed == {"restart": ["x"], "note": {**note, "sending": True}}
    tenant.take("r3")
    (tenant.home / "owed.json").write_text(json.dumps({"note": None}))
    tenant.undo("r3")
    assert json.loads((tenant.home / "owed.json").read_text())["note"] is None


@pytest.mark.parametrize("before", [None, {"restart": ["x"]}])
def test_that_conversations_were_ended_stays_to_be_told_where_they_stay_ended(
    tenant: Tenant, before: dict[str, Any] | None
):
    owed = tenant.home / "owed.json"
    if before:
        owed.write_text(json.dumps(before))
    tenant.take("r1")
    tenant.take_state("r1")
    owed.write_text(json.dumps({"notice": True, "conversations": True}))
    assert tenant.undo("r1")["state"] == "kept"
    assert json.loads(owed.read_text())["notice"] is True
    assert json.loads(owed.read_text()).get("restart") == (before or {}).get("restart")
    assert "conversations" not in json.loads(owed.read_text())


def test_conversations_that_come_back_with_the_state_were_not_ended(tenant: Tenant):
    tenant.take("r1")
    tenant.take_state("r1")
    tenant.execute("ALTER TABLE messages ADD COLUMN mood TEXT")
    (tenant.home / "owed.json").write_text(json.dumps({"notice": True}))
    assert tenant.undo("r1")["state"] == "put back"
    assert not (tenant.home / "owed.json").exists()


def test_conversations_that_were_moved_into_the_set_were_not_ended_either(tenant: Tenant):
    tenant.take("r1", moved=[{"path": str(tenant.state), "kind": "state", "exclude": []}], states=[])
    (tenant.home / "owed.json").write_text(json.dumps({"notice": True}))
    tenant.undo("r1")
    assert not (tenant.home / "owed.json").exists()


# Damage


def test_a_damaged_copy_is_refused_and_nothing_is_touched(tenant: Tenant):
    tenant.take("r1")
    update(tenant)
    before = look_of(tenant)
    (tenant.set_of("r1") / "configuration/0/main.conf").write_text("forged")
    result = tenant.undo("r1")
    assert result["outcome"] == "damaged" and "main.conf" in result["problem"]
    assert look_of(tenant) == before and tenant.told() == []


def test_a_damaged_copy_of_the_state_leaves_the_gateway_running(tenant: Tenant):
    tenant.take("r1")
    tenant.take_state("r1")
    change_form(tenant)
    before = look_of(tenant, "state")
    (tenant.set_of("r1") / "state/0/memory").write_text("forged")
    assert tenant.undo("r1")["outcome"] == "damaged"
    assert look_of(tenant, "state") == before and tenant.told()[-1] == "start gateway.service"


# Taking


def test_without_room_nothing_is_made_and_the_figures_are_given(tenant: Tenant):
    found = tenant.take("r1", reserve_bytes=1 << 60)
    assert found["problem"] == "no room" and found["needed"] > 1 << 60 > found["free"] > 0
    assert os.listdir(tenant.home / "recovery") == []


def test_a_run_that_goes_on_from_an_interrupted_one_uses_its_set(tenant: Tenant):
    tenant.take("r1")
    update(tenant)
    (tenant.home / "version").write_text("2026.10.1\n")
    assert tenant.take("r2", to="2026.10.3")["set"] == "r1"
    assert json.loads((tenant.set_of("r1") / "set.json").read_text())["to"] == "2026.10.3"
    assert tenant.take("r3", **{"from": "2026.10.2"})["set"] == "r3"


def test_the_newest_sets_stay_and_none_goes_before_the_new_one_is_there(tenant: Tenant):
    for number in range(1, 6):
        assert tenant.take(f"r{number}", **{"from": str(number)})["set"] == f"r{number}"
    assert sorted(os.listdir(tenant.home / "recovery")) == ["open.json", "r3", "r4", "r5"]
    assert tenant.take("r6", **{"from": "6", "reserve_bytes": 1 << 60})["problem"]
    assert sorted(os.listdir(tenant.home / "recovery")) == ["open.json", "r3", "r4", "r5"]


def test_the_mark_of_a_set_comes_after_everything_in_it_is_on_the_disk(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    """A set is whole once it has its name; so its files, then its name, reach the disk, in this order."""
    did: list[str] = []

    def name_of(descriptor: int) -> str:
        return os.path.relpath(os.readlink(f"/proc/self/fd/{descriptor}"), tenant.home)

    def note(call: str, words: Callable[..., str]) -> None:
        real = getattr(os, call)

        def noted(*arguments: Any, **more: Any) -> Any:
            did.append(f"{call} {words(*arguments)}")
            return real(*arguments, **more)

        monkeypatch.setattr(os, call, noted)

    note("fsync", name_of)
    note("sync", lambda: "")
    note("rename", lambda source, target: os.path.relpath(target, tenant.home))
    tenant.take("r1")
    name = did.index("rename recovery/r1")
    # What is written of the set is flushed file by file, the copies by one sync.
    assert did[name - 1] == "sync " and did[name + 1] == "fsync recovery"
    written = [did.index(f"rename recovery/r1.partial/{file}.json") for file in ("trees", "set")]
    for at, file in zip(written, ("trees", "set"), strict=True):
        assert did[at - 1] == f"fsync recovery/r1.partial/{file}.json.partial"
        assert did[at + 1] == "fsync recovery/r1.partial" and at < name
    opened = did.index("rename recovery/open.json")
    assert opened > name and did[opened - 1] == "fsync recovery/open.json.partial"
    assert did[opened + 1] == "fsync recovery"


def test_a_death_at_any_change_of_taking_leaves_a_whole_set_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for change in range(1, 500):
        tenant = Tenant.create(tmp_path / str(change), monkeypatch)
        before = look_of(tenant)
        died = dies_at(change, lambda: (tenant.take("r1"), tenant.take_state("r1")))  # noqa: B023
        taken = tenant.take("r2")["set"]
        tenant.take_state(taken)
        update(tenant)
        tenant.undo(taken)
        assert look_of(tenant) == before
        if not died:
            assert change > 20
            return
    pytest.fail("it never came to its end")


def test_a_death_at_any_change_of_an_undo_is_made_good_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for change in range(1, 500):
        tenant = Tenant.create(tmp_path / str(change), monkeypatch)
        before = look_of(tenant)
        tenant.take("r1")
        tenant.take_state("r1")
        state = look_of(tenant, "state")
        update(tenant)
        change_form(tenant)
        newer = look_of(tenant, "state")
        died = dies_at(change, lambda: tenant.undo("r1", by="r2"))  # noqa: B023
        result = tenant.undo("r1", by="dead-man-r2")
        assert look_of(tenant) == before, change
        assert look_of(tenant, "state") == state, change
        if died:
            (aside,) = (tenant.home / "aside").iterdir()
            assert result["aside"] in (str(aside), None), change
            (kept,) = (path for path in (aside / "state").iterdir() if path.is_dir())
            names = {entry["path"] for entries in newer.values() for entry in entries} - {"cache"}
            found = tenant.run(assembled("RESULT = trees.describe(PARAMETERS)"), str(kept))
            assert {entry["path"] for entry in found} == names, change
            assert "reload-or-restart helper.service" in tenant.told()
        else:
            assert change > 40
            return
        shutil.rmtree(tenant.base)
    pytest.fail("it never came to its end")


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_disk_that_fills_up_while_the_set_is_taken_leaves_no_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tenant = Tenant.create(tmp_path, monkeypatch)
    (tenant.base / "etc/app/big").write_bytes(os.urandom(4 << 20))
    os.mkdir(tenant.home / "recovery")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tenant.home / "recovery")], check=True)
    try:
        with pytest.raises(OSError, match="No space left"):
            tenant.take("r1")
        assert not (tenant.set_of("r1")).exists() and not (tenant.home / "recovery/open.json").exists()
        (tenant.base / "etc/app/big").unlink()
        assert tenant.take("r2")["set"] == "r2"
        assert sorted(os.listdir(tenant.home / "recovery")) == ["open.json", "r2"]
    finally:
        subprocess.run(["umount", str(tenant.home / "recovery")], check=True)


@pytest.fixture
def elsewhere(tenant: Tenant) -> Iterator[Tenant]:
    """The tenant with its configuration on a file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounts a file system")
    place = tenant.base / "etc"
    shutil.copytree(place, tenant.base / "copy", symlinks=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], check=True)
    try:
        shutil.copytree(tenant.base / "copy", place, symlinks=True, dirs_exist_ok=True)
        yield tenant
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_configuration_on_another_file_system_goes_back_too(elsewhere: Tenant):
    before = look_of(elsewhere)
    elsewhere.take("r1")
    update(elsewhere)
    aside = Path(elsewhere.undo("r1")["aside"]) / "files" / str(elsewhere.base).lstrip("/")
    assert look_of(elsewhere) == before
    assert (aside / "etc/app/main.conf").read_text() == "new\n"
    assert (aside / "etc/app/added/deep/file").read_text() == "new\n"


def test_state_on_another_file_system_is_refused_before_anything_is_made(elsewhere: Tenant):
    found = elsewhere.take("r1", states=[{"path": str(elsewhere.base / "etc/app"), "exclude": []}])
    assert "another file system" in found["problem"] and found["needed"] == 0
    assert os.listdir(elsewhere.home / "recovery") == []


# Trees that were moved into the set


def move_away(tenant: Tenant, new: Path, run: str) -> None:
    script = """
directory = sets.directory_of(PARAMETERS["run"])
for tree in moves.read_json(directory + "/trees.json")["trees"]:
    if tree["how"] == "moved":
        saved = directory + "/" + tree["saved"]
        os_makedirs = __import__("os").makedirs
        os_makedirs(directory + "/moved", mode=0o700, exist_ok=True)
        moves.replace_children(tree["path"], PARAMETERS["new"], saved, saved + ".json", tree["exclude"])
"""
    tenant.run(assembled(script), {"run": run, "new": str(new)})


def test_trees_that_were_moved_into_a_set_come_back_from_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for change in range(1, 200):
        tenant = Tenant.create(tmp_path / str(change), monkeypatch)
        tenant.state.chmod(0o710)
        before = look_of(tenant, "state")
        new = tenant.base / "restored"
        new.mkdir()
        (new / "memory").write_text("restored")
        moved = {"path": str(tenant.state), "kind": "state", "exclude": ["cache"]}
        tenant.take("r1", states=[], moved=[moved])
        died = dies_at(change, lambda: move_away(tenant, new, "r1"))  # noqa: B023
        if not died:
            assert (tenant.state / "memory").read_text() == "restored"
        for again in range(1, 3):
            dies_at(change + 10 * again, lambda: tenant.undo("r1"))  # noqa: B023
        tenant.undo("r1")
        assert look_of(tenant, "state") == before, change
        if not died:
            return
    pytest.fail("it never came to its end")


def restore_over(tenant: Tenant, run: str, **changes: Any) -> None:
    """What a restore does: the state moves into its set, and that of an archive takes its place."""
    new = tenant.base / f"archive-{run}"
    new.mkdir()
    shutil.copy(tenant.database, new / "state.db")
    moved = {"path": str(tenant.state), "kind": "state", "exclude": ["cache"]}
    tenant.take(run, states=[], moved=[moved], **changes)
    move_away(tenant, new, run)


def test_what_came_after_a_restore_is_counted_and_named_when_it_is_taken_back(tenant: Tenant):
    restore_over(tenant, "r1")
    tenant.say("tuesday")
    result = tenant.undo("r1")
    aside = f"{tenant.home}/aside/r2/state"
    (tree,) = result["given_back"]
    assert tree["path"] == str(tenant.state) and tree["aside"].startswith(aside)
    assert (result["state"], result["newer_messages"], result["newer_in"]) == ("kept", 1, tree["aside"])
    assert (Path(tree["aside"]) / "state.db").exists() and (tenant.state / "memory").exists()
    # Once more, nothing is given back and nothing is lost.
    again = tenant.undo("r1", by="r3")
    assert (again["given_back"], again["newer_in"], again["aside"]) == ([], None, None)


def test_services_do_not_run_while_the_files_of_a_restore_move_back(tenant: Tenant, monkeypatch: pytest.MonkeyPatch):
    (tenant.base / "there/helper.timer").write_text("enabled\n")
    restore_over(tenant, "r1", units=["helper.service", "helper.timer"])
    before = len(tenant.told())
    moves = modules()["moves"]

    def die(*arguments: Any) -> None:
        raise OSError("no more")

    with monkeypatch.context() as broken:
        broken.setattr(moves, "give_back", die)
        with pytest.raises(OSError, match="no more"):
            tenant.undo("r1")
    stops = ["stop gateway.service", "stop helper.timer", "stop helper.service"]
    starts = ["start helper.timer", "start helper.service", "daemon-reload", "reset-failed gateway.service"]
    assert tenant.told()[before:] == [*stops, *starts, "start gateway.service"]
    before = len(tenant.told())
    tenant.undo("r1")
    told = tenant.told()[before:]
    assert told[:3] == stops
    assert told[-3:] == ["daemon-reload", "reset-failed gateway.service", "start gateway.service"]
    assert told.index("reload-or-restart helper.timer") < told.index("reload-or-restart helper.service")


def test_files_that_were_moved_into_a_set_outlive_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for change in range(1, 100):
        tenant = Tenant.create(tmp_path / str(change), monkeypatch)
        restore_over(tenant, "r1")
        tenant.run(assembled("sets.close('r1')"))
        died = dies_at(change, lambda: tenant.take("r2", kept=1))  # noqa: B023
        tenant.take("r3", kept=1, **{"from": "2026.10.2"})
        assert not tenant.set_of("r1").exists()
        kept = tenant.home / "aside/r1/moved"
        assert (kept / "0/memory").read_text() == "of the state", change
        assert json.loads((kept / "0.json").read_text())["live"] == str(tenant.state)
        if not died:
            return
        shutil.rmtree(tenant.base)
    pytest.fail("it never came to its end")


def test_of_a_restore_that_was_taken_back_nothing_is_kept_twice(tenant: Tenant):
    restore_over(tenant, "r1")
    tenant.undo("r1")
    tenant.take("r2", kept=1)
    assert not tenant.set_of("r1").exists() and not (tenant.home / "aside/r1").exists()
