"""Whole environments by the product's own commands: parents, machines and the front, from nothing to nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.drivers.front_admin import ROUTES
from engine.environments.hosting import Ended, Hosting, converge_all, give_verb, plan_of, retire, run_job, run_jobs
from engine.environments.journal import State
from engine.environments.life import DATA
from engine.environments.names import names_of
from engine.environments.orphans import orphans
from engine.errors import ExitCode
from engine.provision.providers.lab import Lab
from engine.subject import Subject
from tests.lab.environments.hosted_fleet import HostedFleet
from tests.lab.environments.visits import Visitor
from tests.lab.lab_tools import light, taken_network, traces
from tests.lab.waiting import until
from tests.unit.updater.clocks import FakeClock

ADMINISTRATOR = "ann@example.com"
MACHINES = {Kind.GATEWAY, Kind.WEB, Kind.ROUTE}


class World(HostedFleet):
    """A fleet with one durable environment and two members of one tier."""

    durable: str
    members: tuple[str, str]

    def visitor(self, uuid: str) -> Visitor:
        return Visitor(self.hosting(), uuid)

    @property
    def visitors(self) -> tuple[Visitor, ...]:
        return tuple(map(self.visitor, (self.durable, *self.members)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World.create(tmp_path_factory.mktemp("hosting") / "fleet")
    assert isinstance(world, World)
    try:
        world.tier("wares")
        world.durable = world.environment(
            lifetime="durable", release="notes-2", bootstrap_admin=ADMINISTRATOR, hostname="notes.example.org"
        )
        world.members = (
            world.environment(release="notes-1", tier="wares", access_policy="invited"),
            world.environment(release="notes-1", tier="wares", access_policy="public"),
        )
        world.write()
        yield world
    finally:
        world.destroy()


def sent(hosting: Hosting) -> tuple[object, ...]:
    """Everything that was ever intended, with its outcome."""
    return hosting.journal.effects()


def present(hosting: Hosting, uuid: str) -> set[Kind]:
    """The kinds of which a provider lists something of `uuid`."""
    listings = {kind: driver.list_owned() for kind, driver in hosting.drivers.items()}
    return {kind for kind, owned in listings.items() if any(item.mark.uuid == uuid for item in owned)}


def test_one_converge_makes_all_that_the_inventory_says(world: World) -> None:
    document = world.document("converge", "converge", "--all")
    assert {item["uuid"]: (item["result"], item["state"]) for item in document["environments"]} == dict.fromkeys(
        world.hosting().entries, ("updated", "ready")
    )
    assert all(visitor.serves() for visitor in world.visitors)
    hosting = world.hosting()
    assert all(present(hosting, uuid) == set(Kind) for uuid in (world.durable,))
    assert all(present(hosting, uuid) == {Kind.ROLE, Kind.KEY} | MACHINES for uuid in world.members)
    assert orphans(hosting.parts) == ()


def test_a_note_lies_in_the_storage_of_its_own_environment(world: World) -> None:
    durable, member, other = world.visitors
    assert durable.ask("/api/notes", "POST", json={"text": "nobody's"}).status_code == 401
    # Who is known, who is approved and which token is whose are the tier's, as the notes are.
    token = other.invite("ana")
    assert durable.post("/api/notes", {"text": "nobody's"}, token).status_code == 401
    mine, shared = durable.write("of the durable one"), member.write("of the tier", token)
    assert durable.stored() == {mine["object"]: "of the durable one"}
    assert member.stored() == other.stored() == {shared["object"]: "of the tier"}
    assert member.notes() == other.notes() == ["of the tier"]
    assert durable.notes() == ["of the durable one"]
    assert "of the durable one" in durable.ask("/").text
    assert durable.identities() == [(ADMINISTRATOR, True)]
    assert member.identities() == other.identities() == [("ana", False)]


def test_a_second_converge_sends_nothing(world: World) -> None:
    before = sent(world.hosting())
    assert all(ended.result.value == "unchanged" for ended in world.converge())
    document = world.document("env-run", "env", "create", world.durable)
    assert [(item["result"], item["done"]) for item in document["subjects"]] == [("unchanged", [])]
    plans = world.document("env-plan", "env", "plan", "--exit-code")["subjects"]
    assert [(plan["changes"], plan["stops"]) for plan in plans] == [(False, False)] * 3
    assert sent(world.hosting()) == before


def test_machines_that_were_switched_off_serve_again(world: World) -> None:
    lab = world.hosting().lab
    assert world.command("lab", "down").returncode == 0
    assert [host.slug for host in lab.list() if host.running] == []
    assert machine_traces(lab) == set()
    with taken_network(lab):
        refused = world.command("lab", "up")
        assert refused.returncode == 1 and "is taken" in refused.stderr
        assert machine_traces(lab) == set()
    before = sent(world.hosting())
    assert world.command("lab", "up").returncode == 0
    for visitor in world.visitors:
        until(lambda each=visitor: each.ask("/health").status_code == 200, "it serves", 120)  # type: ignore[misc]
        assert visitor.serves()
    assert world.visitor(world.durable).notes() == ["of the durable one"]
    # A converge switches on what is off.
    lab.down([host.slug for host in lab.list()])
    assert [ended.result.value for ended in world.converge()] == ["unchanged"] * 4
    assert all(visitor.serves() for visitor in world.visitors)
    assert sent(world.hosting()) == before


def test_what_vanished_stops_a_converge(world: World) -> None:
    hosting = world.hosting()
    admin, name = hosting.parents.front.admin, hosting.specifications[world.durable].name(Kind.ROUTE)
    routes = admin.read(ROUTES)
    index = next(index for index, route in enumerate(routes.value) if route.get("@id") == name)
    admin.change("DELETE", f"{ROUTES}/{index}", routes)
    before = sent(hosting)

    (plan,) = world.document("env-plan", "env", "plan", world.durable, code=1)["subjects"]
    assert plan["stops"]
    assert [(item["kind"], item["word"]) for item in plan["resources"] if item["step"] != "nothing"] == [
        ("route", "resourceMissing")
    ]
    (ended,) = world.document("env-run", "env", "create", world.durable, code=1)["subjects"]
    assert "resourceMissing" in ended["error"]
    assert hosting.journal.required(world.durable).attention == "resourceMissing"
    assert sent(hosting) == before

    # Whoever took it puts it back: nobody has to wait for a person any more.
    admin.change("PUT", f"{ROUTES}/{index}", admin.read(ROUTES), routes.value[index])
    assert world.document("env-run", "env", "create", world.durable)["subjects"][0]["result"] == "unchanged"
    assert hosting.journal.required(world.durable).attention is None
    assert sent(hosting) == before
    assert world.visitor(world.durable).serves()


def test_what_is_not_ours_is_neither_taken_over_nor_deleted(world: World) -> None:
    of_host, of_route, of_database = (world.environment(release="notes-1") for _ in range(3))
    world.write()
    hosting = world.hosting()
    theirs = Theirs(hosting, names_of(of_host).gateway, names_of(of_route).route, names_of(of_database).database)
    theirs.make()
    before = theirs.seen()
    subjects = [Subject("env", uuid) for uuid in (of_host, of_route, of_database)]
    for ended in converge_all(hosting, subjects):
        assert (ended.exit_code, ended.state) == (ExitCode.FAILED, State.CREATING)
        assert "foreignResource" in str(ended.error)
        assert "foreignResource" in [item.word for item in plan_of(hosting, ended.subject.id).resources]
    assert theirs.seen() == before
    for command, state in (("abandon", "abandoned"), ("reclaim", "tombstoned")):
        document = world.document("env-run", "env", command, of_host, of_route, of_database)
        assert [item["state"] for item in document["subjects"]] == [state] * 3
    for subject in subjects:
        del world.environments[subject.id]
    world.write()
    assert [present(hosting, subject.id) for subject in subjects] == [set()] * 3
    assert theirs.seen() == before
    assert orphans(hosting.parts) == ()
    theirs.remove()


def test_a_duplicate_is_new_and_a_restore_has_the_notes(world: World) -> None:
    source = world.visitor(world.durable)
    world.document("env-run", "env", "backup", world.durable)
    (copy,) = world.document("env-backups", "env", "backups", world.durable)["copies"]
    before = (source.stored(), source.hosting.journal.effects(source.uuid))
    duplicate, restored = (
        world.visitor(world.document("env-new", "env", *command)["uuid"])
        for command in (("duplicate", source.uuid), ("restore", source.uuid, "--backup", copy["copy"]))
    )
    assert len({source.uuid, duplicate.uuid, restored.uuid}) == 3
    assert duplicate.serves() and duplicate.notes() == [] and duplicate.stored() == {}
    assert restored.serves() and restored.notes() == ["of the durable one"]
    assert restored.stored() == source.stored()
    assert restored.write("later")["text"] in restored.notes()
    assert (source.stored(), source.hosting.journal.effects(source.uuid)) == before
    assert source.serves() and source.notes() == ["of the durable one"]


def test_a_disposable_one_goes_at_once(world: World) -> None:
    gone, stays = world.members
    (ended,) = world.document("env-run", "env", "retire", gone)["subjects"]
    assert (ended["result"], ended["state"]) == ("updated", "tombstoned")
    hosting = world.hosting()
    assert hosting.entry(gone).retired
    assert present(hosting, gone) == set()
    assert not credentials_file(hosting, gone).exists()
    assert orphans(hosting.parts) == ()
    assert world.visitor(stays).serves()
    assert world.visitor(stays).notes() == ["of the tier"]
    assert world.document("env-plan", "env", "plan", "--exit-code")["subjects"]


def test_the_data_of_a_durable_one_stay_for_168_hours(world: World) -> None:
    hosting, clock = with_fake_clock(world)
    retired_at = clock.now()
    ended = job(hosting, world.durable, retire)
    assert (ended.error, ended.state) == (None, State.RETAINED)
    row = hosting.journal.required(world.durable)
    assert row.retired_at == retired_at
    assert present(hosting, world.durable) == DATA
    assert hosting.lab.find(hosting.specifications[world.durable].name(Kind.GATEWAY)) is None
    assert world.visitor(world.durable).ask("/health").status_code == 404
    assert set(world.visitor(world.durable).stored().values()) == {"of the durable one"}
    assert credentials_file(hosting, world.durable).exists()

    refused = world.command("env", "expire-retained", world.durable)
    assert refused.returncode == 1 and "retentionRunning" in refused.stderr
    effects = sent(hosting)
    clock.sleep((retired_at - clock.now()).total_seconds() + 168 * 3600 - 1)
    ended = job(hosting, world.durable, give_verb(Verb.EXPIRE_RETAINED))
    assert ended.exit_code is ExitCode.FAILED and "retentionRunning" in str(ended.error)
    assert sent(hosting) == effects and present(hosting, world.durable) == DATA

    clock.sleep(1)
    ended = job(hosting, world.durable, give_verb(Verb.EXPIRE_RETAINED))
    assert (ended.error, ended.state) == (None, State.TOMBSTONED)
    assert present(hosting, world.durable) == set()
    assert orphans(hosting.parts) == ()
    assert not credentials_file(hosting, world.durable).exists()


@dataclass(frozen=True)
class Theirs:
    """Things of somebody else under names that environments would have."""

    hosting: Hosting
    host: str
    route: str
    database: str

    def make(self) -> None:
        self.hosting.lab.up([light(self.hosting.lab, self.host)])
        answer = {"handler": "static_response", "body": "theirs"}
        route = {"@id": self.route, "match": [{"host": ["theirs.example"]}], "handle": [answer], "terminal": True}
        admin = self.hosting.parents.front.admin
        admin.change("PUT", f"{ROUTES}/0", admin.read(ROUTES), route)
        with self.hosting.parents.postgres.connection() as connection:
            connection.execute(f"CREATE DATABASE {self.database}")  # type: ignore[arg-type]

    def seen(self) -> tuple[object, ...]:
        query = "SELECT oid, datdba, datacl, shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
        with self.hosting.parents.postgres.connection() as connection:
            database = connection.execute(query, (self.database,)).fetchone()
        route = self.hosting.parents.front.admin.read(f"/id/{self.route}").value
        host = self.hosting.lab.find_required(self.host)
        assert host.running and database
        return host, route, database

    def remove(self) -> None:
        self.hosting.lab.destroy([self.host])
        with self.hosting.parents.postgres.connection() as connection:
            connection.execute(f"DROP DATABASE {self.database}")  # type: ignore[arg-type]


def machine_traces(lab: Lab) -> set[str]:
    """What this machine has of the lab but for the parents and the front, which are groups of their own."""
    group = f"/{lab.names.group}"
    return {trace for trace in traces(lab) if "/.parent-" not in trace and not trace.endswith(group)}


def with_fake_clock(world: World) -> tuple[Hosting, FakeClock]:
    """The fleet's environments with a clock of the test's, at a whole second of today."""
    clock = FakeClock(int(time.time()))
    return replace(world.hosting(), clock=clock), clock


def job(hosting: Hosting, uuid: str, work: Any) -> Ended:
    return run_job(hosting, Subject("env", uuid), "test", work)


def credentials_file(hosting: Hosting, uuid: str) -> Path:
    return hosting.credentials.directory / f"{uuid}.json"


@pytest.mark.soak
def test_ten_environments_with_machines(tmp_path: Path) -> None:
    fleet = HostedFleet.create(tmp_path / "fleet")
    try:
        fleet.tier("wares")
        uuids = [
            fleet.environment(lifetime="durable", release="notes-2")
            if number % 2
            else fleet.environment(release="notes-1", tier="wares")
            for number in range(10)
        ]
        members, own = uuids[::2], uuids[1::2]
        fleet.write()
        hosting = fleet.hosting()
        tier, *envs = (entry.subject for entry in hosting.entries.values())
        halves = {"the first": envs[:5], "the last": envs[5:]}
        memory = [available_megabytes()]
        converge_all(hosting, [tier])
        for name, half in halves.items():
            timed(f"made, {name}", lambda half=half: converge_all(hosting, half))  # type: ignore[misc]
        memory.append(available_megabytes())
        for uuid in uuids:
            assert Visitor(hosting, uuid).serves()
            Visitor(hosting, uuid).write(f"of {uuid}")
        assert [Visitor(hosting, uuid).notes() for uuid in own] == [[f"of {uuid}"] for uuid in own]
        before = sent(hosting)
        for name, half in halves.items():
            timed(f"nothing to do, {name}", lambda half=half: converge_all(hosting, half))  # type: ignore[misc]
        assert sent(hosting) == before
        for name, half in halves.items():
            timed(f"retired, {name}", lambda half=half: run_jobs(hosting, half, "retire", retire))  # type: ignore[misc]
        memory.append(available_megabytes())
        print(f"memory available, MB: {' -> '.join(f'{value:.0f}' for value in memory)}")
        assert hosting.lab.list() == () and machine_traces(hosting.lab) == set()
        assert [present(hosting, uuid) for uuid in own] == [DATA] * 5
        assert [present(hosting, uuid) for uuid in members] == [set()] * 5
        assert orphans(hosting.parts) == ()
    finally:
        fleet.destroy()


def timed(name: str, work: Callable[[], tuple[Ended, ...]]) -> None:
    """Say how long `work` took, for each environment."""
    start = time.perf_counter()
    ended = work()
    seconds = time.perf_counter() - start
    assert [item.error for item in ended if item.error] == []
    print(f"{name}: {seconds:.1f} s for {len(ended)}, {seconds / len(ended):.2f} s each")


def available_megabytes() -> float:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    return int(line.split()[1]) / 1024
