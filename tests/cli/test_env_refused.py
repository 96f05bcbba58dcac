"""Entries that can never be, refused with exit 2 before anything is looked at: no parent is up in these tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from engine.environments.hosting import open_hosting
from engine.environments.journal import State
from engine.errors import ExitCode
from engine.registry.environments import ENVIRONMENTS_FILE
from engine.subject import Subject
from tests.cli.conftest import Tenantry
from tests.unit.hosted import ENVIRONMENTS, MEMBER, OWN, TIER, write_environments

OTHER = "6d1f1c1c-0b8e-4e55-8a4f-1d2f6d8e7a10"
COMMANDS = (
    ("env", "plan"),
    ("env", "create", OWN),
    ("env", "retire", OWN),
    ("tier", "plan"),
    ("plan",),
    ("converge", "--all"),
)
RETIRE = ("env", "retire")
"""Goes by what was recorded, so that no entry can keep another one from being let go of."""

Change = Callable[[dict[str, Any]], object]


def write(tenantry: Tenantry, change: Change) -> None:
    content = yaml.safe_load(ENVIRONMENTS.replace("release: first", "release: notes-1"))
    change(content)
    write_environments(tenantry.root, yaml.safe_dump(content, sort_keys=False))


def record(tenantry: Tenantry, uuid: str) -> None:
    """Begin an entry in the journal as the first job on it would."""
    hosting = open_hosting(tenantry.root, tenantry.state_directory)
    hosting.journal.begin(hosting.specifications[uuid].subject())


def refused(tenantry: Tenantry, *words: str, but: tuple[str, ...] = ()) -> None:
    for command in (command for command in COMMANDS if command[:2] != but):
        ended = tenantry(*command)
        assert ended.code == 2, (command, ended)
        for word in words:
            assert word in ended.err, (command, ended.err)
        assert "Traceback" not in ended.err


def environment(key: str, value: object, uuid: str = OWN) -> Change:
    return lambda content: content["environments"][uuid].update({key: value})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (environment("tier", "none", MEMBER), ("there is no tier none",)),
        (environment("hostname", "x.example.com", MEMBER), ("no public name",)),
        (lambda content: content["tiers"]["common"].update(retired=True), ("only without members, this one has 1",)),
        (lambda content: content["tiers"].update(twin={"uuid": TIER, "project": "shop"}), ("tier common already",)),
        (lambda content: content["tiers"].update(twin={"uuid": OWN, "project": "shop"}), ("an environment already",)),
        (lambda content: content["environments"].update({"../../etc/passwd": {}}), ("../../etc/passwd",)),
        (environment("project", "../shop"), ("project",)),
        (environment("release", "../notes-1"), ("release",)),
        (environment("release", "notes-9"), ("there is no release notes-9", "notes-1")),
        (environment("bootstrap_admin", "rosa@maple.example"), ("bootstrap_admin", "childSpecExtensions")),
        (environment("restore", {"environment": OWN, "backup": "b1"}), ("never restored in place",)),
        (environment("size", 3), ("size",)),
    ],
)
def test_what_can_never_be(hosted: Tenantry, change: Change, words: tuple[str, ...]) -> None:
    write(hosted, change)
    refused(hosted, *words)
    assert not hosted.state_directory.exists()


def test_a_uuid_that_is_there_twice(hosted: Tenantry) -> None:
    path = hosted.root / "inventory/environments.yaml"
    text = path.read_text()
    path.write_text(text + text.partition("environments:\n")[2].partition(f"  {MEMBER}")[0])
    refused(hosted, OWN)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (environment("stage", "other"), "stage"),
        (environment("release", "notes-2"), "release.digest"),
        (environment("access_policy", "public"), "binding.access_policy"),
        (environment("lifetime", "disposable"), "lifetime"),
    ],
)
def test_what_an_environment_is_never_changes(hosted: Tenantry, change: Change, key: str) -> None:
    record(hosted, OWN)
    write(hosted, change)
    refused(hosted, OWN, "specificationChanged", key, but=RETIRE)


def test_a_changed_release_is_another_release(hosted: Tenantry) -> None:
    record(hosted, OWN)
    with (hosted.root / "deploys/environments/notes-1/web/main.py").open("a") as program:
        program.write("\n# More.\n")
    refused(hosted, OWN, "specificationChanged", "release.digest", but=RETIRE)


def test_a_uuid_never_comes_back(hosted: Tenantry) -> None:
    record(hosted, OWN)
    hosting = open_hosting(hosted.root, hosted.state_directory)
    hosting.journal.writer(OWN).fence(State.RECLAIMING).move(State.TOMBSTONED)
    ended = hosted("env", "create", OWN)
    assert (ended.code, "alreadyTombstoned" in ended.err) == (1, True), ended
    # A job that died may have left the entry: others go on, and fail here by themselves, since no parent is up.
    ended = hosted("converge", "--all")
    assert (ended.code, "alreadyTombstoned" in ended.err, "parent postgres: notRunning" in ended.err) == (1, True, True)
    assert hosted("env", "backup", "--all").code == hosted("tier", "backup", "--all").code == 0
    write(hosted, environment("retired", True))
    assert hosted("env", "plan", OWN).out.startswith(f"env/{OWN}: tombstoned -> retired, nothing pending")


def test_unknown_subjects_are_named(hosted: Tenantry) -> None:
    for command in (("env", "create"), ("env", "reclaim"), ("tier", "retire"), ("env", "plan")):
        ended = hosted(*command, OTHER)
        assert (ended.code, OTHER in ended.err) == (2, True), ended


def test_what_never_began_is_not_retired(hosted: Tenantry) -> None:
    write(hosted, lambda content: None)
    before = (hosted.root / ENVIRONMENTS_FILE).read_bytes()
    ended = hosted("env", "retire", OWN)
    assert (ended.code, "it never began" in ended.err) == (2, True), ended
    assert (hosted.root / ENVIRONMENTS_FILE).read_bytes() == before


def test_a_busy_environment_is_not_marked_as_retired(hosted: Tenantry) -> None:
    record(hosted, OWN)
    hosting = open_hosting(hosted.root, hosted.state_directory)
    hosting.journal.writer(OWN).move(State.READY)
    before = (hosted.root / ENVIRONMENTS_FILE).read_bytes()
    with hosting.locks.hold(Subject("env", OWN), job="converge", run="r"):
        assert hosted("env", "retire", OWN).code == ExitCode.BUSY
    assert (hosted.root / ENVIRONMENTS_FILE).read_bytes() == before
