"""The parents on this machine: found again, never taken for others, and never without their data."""

from __future__ import annotations

import json
import signal
import socket
from dataclasses import asdict, replace
from pathlib import Path

import psycopg
import pytest

from engine.environments.observation import Unknown
from engine.environments.parents import LabParents, ParentKind, ParentSeen, recognized, require
from engine.environments.parents.programs import digest_of, objects_program, postgres_directory
from engine.environments.parents.recognition import Deviation
from engine.errors import Refused, UnknownState
from engine.provision.providers.lab.state import write_json
from engine.registry.environments_model import ParentPins
from tests.lab.environments.conftest import Child, Drivers, kill_objects, parents_in_memory
from tests.lab.environments.listening import listening_elsewhere
from tests.lab.waiting import until

OTHER_PIN = "sha256:" + "0" * 64


@pytest.fixture
def own_parents(tmp_path: Path):
    with parents_in_memory(tmp_path):
        made = LabParents(tmp_path, print)
        yield made
        kill_objects(made)
        made.down()


def test_what_runs_is_seen_by_its_digest_without_rights_and_on_loopback_alone(parents: LabParents):
    programs = {
        ParentKind.POSTGRES: postgres_directory() / "postgres",
        ParentKind.OBJECTS: objects_program(),
    }
    for kind, program in programs.items():
        seen, record = parents.observe(kind), parents.record(kind)
        assert isinstance(seen, ParentSeen)
        assert (seen.digest, seen.deviations) == (digest_of(program), ())
        assert record is not None
        status = Path(f"/proc/{record.pid}/status").read_text()
        fields = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
        assert "0" not in fields["Uid"]
        assert {fields[name][0] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
        command = Path(f"/proc/{record.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{record.pid}/environ").read_bytes()
        for secret in (parents.postgres.password, parents.objects.admin.secret_key):
            assert secret not in command + environment
        assert listening_elsewhere(set(record.ports.values())) == set()


def test_nothing_secret_can_be_read_by_others(parents: LabParents):
    directory = parents._directory
    assert directory.stat().st_mode & 0o077 == 0
    for path in (directory / "secrets").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    logs = b"".join(path.read_bytes() for path in (directory.parent / "logs").glob("parent-*"))
    for secret in (parents.postgres.password, parents.objects.admin.secret_key):
        assert secret not in logs


def test_the_stores_inner_ports_want_a_key(parents: LabParents):
    record = parents.record(ParentKind.OBJECTS)
    assert record is not None
    for name, path in (("filer", "/buckets/"), ("filer", "/etc/iam/identity.json"), ("volume", "/ui/index.html")):
        with socket.create_connection(("127.0.0.1", record.ports[name])) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert b" 401 " in connection.recv(100)


def test_only_the_pin_or_a_named_successor_is_recognized(parents: LabParents, admin: psycopg.Connection):
    for kind in ParentKind:
        seen = parents.observe(kind)
        assert isinstance(seen, ParentSeen)
        assert require(kind, seen, ParentPins(seen.digest)) == seen
        assert require(kind, seen, ParentPins(OTHER_PIN, (seen.digest,))) == seen
        with pytest.raises(Refused, match="parentUnrecognized") as refused:
            require(kind, seen, ParentPins(OTHER_PIN))
        assert seen.digest in str(refused.value)
        with pytest.raises(UnknownState, match="timedOut"):
            require(kind, Unknown("timedOut"), ParentPins(seen.digest))
    admin.execute("GRANT CONNECT ON DATABASE postgres TO PUBLIC")
    admin.execute("CREATE ROLE somebody SUPERUSER")
    try:
        seen = parents.observe(ParentKind.POSTGRES)
        assert isinstance(seen, ParentSeen)
        assert set(seen.deviations) == {Deviation.OPEN_DATABASE, Deviation.FOREIGN_SUPERUSER}
        assert not recognized(seen, ParentPins(seen.digest))
        with pytest.raises(Refused, match=r"parentUnrecognized: .*ownDatabaseOpenToAll"):
            require(ParentKind.POSTGRES, seen, ParentPins(seen.digest))
    finally:
        admin.execute("REVOKE CONNECT ON DATABASE postgres FROM PUBLIC")
        admin.execute("DROP ROLE somebody")


def test_data_ports_and_keys_outlive_stops_kills_and_a_start_that_was_not_recorded(own_parents: LabParents):
    own_parents.up()
    first = {kind: own_parents.record(kind) for kind in ParentKind}
    drivers = Drivers.over(own_parents.postgres, own_parents.objects)
    child = drivers.make(Child())
    own_parents.up()
    assert {kind: own_parents.record(kind) for kind in ParentKind} == first
    own_parents.down()
    assert [own_parents.observe(kind) for kind in ParentKind] == [Unknown("notRunning")] * 2
    assert drivers.database.observe(child.names.database) == Unknown("unreachable")
    assert drivers.key.observe(child.names.key) == Unknown("unreachable")
    own_parents.up()
    for kind in ParentKind:
        record = own_parents.record(kind)
        assert record is not None
        assert record.process is not None
        assert record.ports == first[kind].ports
        record.process.signal(signal.SIGKILL)
        until(lambda record=record: record.process is None, "the parent has ended")  # type: ignore[misc]
        assert own_parents.observe(kind) == Unknown("notRunning")
    own_parents.up()
    forgotten = own_parents.record(ParentKind.OBJECTS)
    assert forgotten is not None
    process = forgotten.process
    assert process is not None
    write_json(own_parents._directory / "objects.json", asdict(replace(forgotten, pid=None, started=None)))
    own_parents.up()
    assert not process.alive
    for kind in ("database", "role", "bucket", "key"):
        assert getattr(drivers, kind).observe(getattr(child.names, kind)).mark == child.mark


def test_a_port_that_another_program_has_is_refused_not_changed(own_parents: LabParents):
    own_parents.up()
    own_parents.down()
    ports = json.loads((own_parents._directory / "postgres.json").read_text())["ports"]
    with socket.create_server(("127.0.0.1", ports["postgres"])), pytest.raises(Refused, match="another program"):
        own_parents.up()
    assert own_parents.observe(ParentKind.POSTGRES) == Unknown("notRunning")
