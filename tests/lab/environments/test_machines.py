"""The driver of machines on real lab hosts, with programs that use the parents themselves."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import psycopg
import pytest

from engine.environments.drivers.base import Kind, Owned
from engine.environments.drivers.machines import LabMachines
from engine.environments.observation import Absent, Label, Mark, Present, Unknown, read_label
from engine.environments.parents import LabParents
from engine.environments.parents.relay import Stores, relay_parents
from engine.errors import DriverRefused, Refused
from engine.provision.providers.lab import HostSpec, Lab, LabProvider, commands, ensure_identity, state
from engine.provision.providers.lab.state import Phase
from tests.lab.conftest import MakeLab
from tests.lab.environments.conftest import DIGEST, Child, Drivers
from tests.lab.environments.hosted_machines import DIRECTLY, SPECIFICATION, TOKEN, Machines
from tests.lab.killed_lab import Death
from tests.lab.lab_tools import inside, light, traces
from tests.lab.light_fleet import LightFleet

MACHINES = (Kind.GATEWAY, Kind.WEB)


@pytest.fixture
def machines(lab: Lab) -> Machines:
    """Machines whose programs reach nothing."""
    return Machines(lab, Stores("127.0.0.1", 1, 1))


@pytest.fixture
def child(machines: Machines) -> Iterator[Child]:
    child = Child()
    yield child
    for kind in MACHINES:
        if machines.lab.find(getattr(child.names, kind)) is not None:
            machines.lab.destroy([getattr(child.names, kind)])


def whole(child: Child) -> tuple[str, Mark]:
    return DIGEST, child.mark


def shape(seen: object) -> tuple[str, Mark | None]:
    assert isinstance(seen, Present), seen
    return seen.digest, seen.mark


def test_both_machines_serve_from_the_environments_own_storage(
    make_lab: MakeLab, parents: LabParents, drivers: Drivers
) -> None:
    lab = make_lab()
    machines = Machines(lab, relay_parents(lab, parents))
    child = drivers.make(Child())
    for kind in MACHINES:
        request = machines.request(child, kind, "notes-2", bootstrap_admin="ann@example.com")
        assert isinstance(machines[kind].observe(request.name), Absent)
        made = machines[kind].create(request)
        assert shape(made) == whole(child)
        assert machines[kind].create(request) == machines[kind].observe(request.name) == made
        health = machines.wait_health(child, kind)
        assert health.pop("started")
        assert health == {"environment": child.uuid, "kind": kind, "specification": SPECIFICATION}
        assert machines[kind].list_owned() == (Owned(request.name, child.mark),)
        assert TOKEN not in inside(lab, request.name, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '; journalctl")
        assert inside(lab, request.name, "stat -c '%a %U' /etc/environment-binding.json").split() == ["600", "root"]

    gateway, web = (machines.url(child, kind) for kind in MACHINES)
    note, mine = {"text": "<i>A note</i>"}, {"Authorization": f"Bearer {TOKEN}"}
    assert httpx.post(f"{gateway}/api/notes", json=note, **DIRECTLY).status_code == 401
    written = httpx.post(f"{gateway}/api/notes", json=note, headers=mine, **DIRECTLY).raise_for_status().json()
    assert "&lt;i&gt;A note&lt;/i&gt;" in httpx.get(web, **DIRECTLY).text
    assert httpx.get(f"{web}/notes/{written['id']}", **DIRECTLY).text == note["text"]
    with psycopg.connect(
        host=parents.postgres.host,
        port=parents.postgres.port,
        user=child.names.role,
        password=child.password.decode(),
        dbname=child.names.database,
    ) as connection:
        assert connection.execute("SELECT object, text FROM notes").fetchall() == [(written["object"], note["text"])]
        assert connection.execute("SELECT * FROM identities").fetchall() == [("ann@example.com", True)]
    stored = parents.objects.s3.get_object(Bucket=child.names.bucket, Key=written["object"])["Body"].read()
    assert stored.decode() == note["text"]

    # The lab leaves this machine, maybe because that was switched off, and comes back with all that it had.
    lab.down()
    assert traces(lab) == set()
    for kind in MACHINES:
        assert shape(machines[kind].observe(getattr(child.names, kind))) == whole(child)
        machines[kind].power_on(getattr(child.names, kind))
        machines.wait_health(child, kind)
    assert note["text"] in httpx.get(f"{gateway}/api/notes", **DIRECTLY).text

    for kind in MACHINES:
        machines[kind].delete(getattr(child.names, kind), child.mark)
        assert isinstance(machines[kind].observe(getattr(child.names, kind)), Absent)
        assert machines[kind].list_owned() == ()
    assert traces(lab) == set()


def test_a_program_that_cannot_use_its_stores_says_so_in_one_word(machines: Machines, child: Child) -> None:
    machines[Kind.GATEWAY].create(machines.request(child, Kind.GATEWAY))
    assert machines.wait_health(child, Kind.GATEWAY, 503) == {"error": "databaseUnavailable"}


def test_a_machine_of_another_is_neither_taken_over_nor_removed(machines: Machines, child: Child) -> None:
    driver, request = machines[Kind.GATEWAY], machines.request(child, Kind.GATEWAY)
    other = Mark(child.uuid, "intent-2")
    for label in (None, "somebody's", Label(Kind.WEB, child.mark, DIGEST).text()):
        machines.lab.up([replace(light(machines.lab, request.name), label=label)])
        assert shape(driver.observe(request.name)) == ("incomplete", None)
        refused_everything(driver, machines, child)
        machines.lab.destroy([request.name])
    driver.create(replace(request, intent_id=other.intent_id))
    assert shape(driver.observe(request.name)) == (DIGEST, other)
    refused_everything(driver, machines, child)
    # Nor may anything that manages tenants have it.
    for call in (machines.lab.rebuild, lambda spec: machines.lab.up([spec])):
        with pytest.raises(Refused, match="somebody else"):
            call(light(machines.lab, request.name))
    assert shape(driver.observe(request.name)) == (DIGEST, other)


def refused_everything(driver: LabMachines, machines: Machines, child: Child) -> None:
    name = driver.name(child.uuid)
    before = machines.lab.find_required(name)
    with pytest.raises(DriverRefused, match="foreignResource"):
        driver.create(machines.request(child, driver.kind))
    with pytest.raises(DriverRefused, match="foreignResource"):
        driver.delete(name, child.mark)
    assert machines.lab.find_required(name) == before


def test_what_is_left_without_its_record_is_unknown(machines: Machines, child: Child) -> None:
    driver, request = machines[Kind.WEB], machines.request(child, Kind.WEB)
    driver.create(request)
    record = machines.lab.state.read_host(request.name)
    assert record is not None
    machines.lab.state.forget_host(request.name)
    assert driver.observe(request.name) == Unknown("unreadable")
    with pytest.raises(DriverRefused, match="unreadable"):
        driver.delete(request.name, child.mark)
    machines.lab.state.host_file(request.name).write_text("{")
    assert driver.observe(request.name) == Unknown("unreadable")
    machines.lab.state.write_host(record)
    assert shape(driver.observe(request.name)) == whole(child)
    # A disk that is not whole is one more thing than an absent machine, and less than the one that was asked for.
    machines.lab.state.write_host(replace(record, phase=Phase.PREPARING))
    assert shape(driver.observe(request.name)) == ("incomplete", child.mark)
    driver.delete(request.name, child.mark)
    assert isinstance(driver.observe(request.name), Absent)


def test_a_creation_that_the_machine_does_not_allow_is_refused(machines: Machines, child: Child) -> None:
    request = machines.request(child, Kind.WEB)
    directory = machines.lab.state.disk(request.name)
    directory.parent.mkdir(exist_ok=True)
    with pytest.raises(DriverRefused):
        machines[Kind.WEB].create(replace(request, machine=None))
    directory.write_text("in the way")
    assert machines[Kind.WEB].observe(request.name) == Unknown("unreadable")
    with pytest.raises(DriverRefused, match="unreadable"):
        machines[Kind.WEB].create(request)
    directory.unlink()


@pytest.mark.parametrize("point", range(0, 17, 3))
def test_a_killed_creation_is_finished_by_the_next(machines: Machines, child: Child, point: int) -> None:
    driver, request = machines[Kind.WEB], machines.request(child, Kind.WEB)
    killed(point, lambda: driver.create(request))
    seen = driver.observe(request.name)
    if isinstance(seen, Absent):
        assert not machines.lab.has_remains(request.name)
    else:
        assert shape(seen) in (whole(child), ("incomplete", child.mark))
        assert driver.list_owned() == (Owned(request.name, child.mark),)
    assert shape(driver.create(request)) == whole(child)
    assert machines.lab.find_required(request.name).running
    assert (machines.lab.state.root(request.name) / "opt/environment/main.py").is_file()


@pytest.mark.parametrize("point", range(5))
def test_a_killed_deletion_is_finished_by_the_next(machines: Machines, child: Child, point: int) -> None:
    driver, request = machines[Kind.WEB], machines.request(child, Kind.WEB)
    driver.create(request)
    killed(point, lambda: driver.delete(request.name, child.mark))
    seen = driver.observe(request.name)
    assert isinstance(seen, Absent) or shape(seen) in (whole(child), ("incomplete", child.mark))
    assert machines.lab.has_remains(request.name) is isinstance(seen, Present)
    driver.delete(request.name, child.mark)
    assert isinstance(driver.observe(request.name), Absent)
    assert not machines.lab.has_remains(request.name)


def killed(point: int, work: Callable[[], object]) -> None:
    """Do `work` in a child that kills itself at its `point`-th command or record, if it comes that far."""
    process = os.fork()
    if process == 0:
        try:
            death = Death(point)
            commands.subprocess.run = death.run  # type: ignore[attr-defined]
            state.replace_file = death.replace_file
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(process, 0)
    assert os.WIFEXITED(status) or os.WTERMSIG(status) == signal.SIGKILL


def test_commands_about_tenants_remove_no_machine(tmp_path: Path, child: Child) -> None:
    fleet = LightFleet.create(tmp_path / "fleet", [])
    lab, name = fleet.lab, child.names.web
    ensure_identity(fleet.state)
    machines = Machines(lab, Stores("127.0.0.1", 1, 1))
    try:
        machines[Kind.WEB].create(machines.request(child, Kind.WEB))
        lab.up([light(lab, "maple")])
        code, said = command(fleet, "lab", "down", "--destroy", name)
        assert code == 2 and "env retire" in said
        assert command(fleet, "lab", "down", "--destroy") == (0, "")
        assert [host.slug for host in lab.list()] == [name]
        # Even a tenant of that very name does not get it.
        fleet.register([name])
        tenant, provider = fleet.workspace().fleet.tenants[name], LabProvider(lab)
        for call in (provider.find, provider.destroy, lambda tenant: provider.rebuild(tenant, "")):
            with pytest.raises(Refused, match="belongs to"):
                call(tenant)
        assert shape(machines[Kind.WEB].observe(name)) == whole(child)
    finally:
        lab.destroy()


def command(fleet: LightFleet, *arguments: str) -> tuple[int, str]:
    """How a command on the fleet ended, and what it said of a failure."""
    process = fleet.cli(*arguments)
    _, said = process.communicate()
    return process.returncode, said if process.returncode else ""


def test_labels_of_both_kinds_are_kept_apart(machines: Machines, child: Child) -> None:
    spec = HostSpec(child.names.web, label=Label(Kind.WEB, child.mark, DIGEST).text())
    machines.lab.up([spec])
    assert read_label(machines.lab.find_required(spec.slug).label) == Label(Kind.WEB, child.mark, DIGEST)
    assert machines[Kind.WEB].list_owned() == (Owned(spec.slug, child.mark),)
    assert machines[Kind.GATEWAY].list_owned() == ()
