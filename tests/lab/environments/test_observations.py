"""Every answer that a parent can give, and that none of them but its own word means absent."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from engine.environments.drivers.base import KeyPair
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.names import Owner
from engine.environments.observation import Absent, Present, Unknown
from engine.environments.parents import LabParents
from engine.errors import DispatchLost, DriverRefused, UnknownState
from tests.lab.environments.conftest import DIGEST, Child, Drivers
from tests.lab.environments.faults import HttpProxy, PostgresProxy, Proxy
from tests.lab.waiting import until

MakeHttp = Callable[..., tuple[HttpProxy, Drivers]]
MakePostgres = Callable[..., tuple[PostgresProxy, Drivers]]

HTTP_FAULTS = {
    "401": "credentialRefused",
    "403": "denied",
    "404": "unexpectedAnswer",
    "bare 404": "unexpectedAnswer|unreadable",
    "408": "timedOut",
    "429": "tooMany",
    "500": "providerFailed",
    "503": "providerFailed",
    "cut": "connectionLost",
    "hang": "timedOut",
    "half": "connectionLost|unreadable|providerFailed",
    "torn": "unreadable|providerFailed",
    "empty": "unreadable",
    "late": "connectionLost",
}


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        proxy.stop()


@pytest.fixture
def http(parents: LabParents, proxies: list[Proxy]) -> MakeHttp:
    def make(fault: str, at: int = 0) -> tuple[HttpProxy, Drivers]:
        proxy = HttpProxy(int(parents.objects.endpoint.rpartition(":")[2]), fault=fault, at=at)
        proxies.append(proxy)
        store = replace(parents.objects, endpoint=f"http://127.0.0.1:{proxy.port}", answer_seconds=_patience(fault))
        return proxy, Drivers.over(parents.postgres, store)

    return make


@pytest.fixture
def postgres(parents: LabParents, proxies: list[Proxy]) -> MakePostgres:
    def make(fault: str, word: bytes, **more: object) -> tuple[PostgresProxy, Drivers]:
        proxy = PostgresProxy(parents.postgres.port, fault=fault, word=word, **more)
        proxies.append(proxy)
        parent = replace(parents.postgres, port=proxy.port, answer_seconds=_patience(fault))
        return proxy, Drivers.over(parent, parents.objects)

    return make


def test_a_resource_that_does_not_exist_is_absent_and_one_that_does_is_present(drivers: Drivers):
    child = Child()
    for kind in ("database", "role", "bucket", "key"):
        assert getattr(drivers, kind).observe(getattr(child.names, kind)) == Absent()
    drivers.make(child)
    for kind in ("database", "role", "bucket", "key"):
        driver, name = getattr(drivers, kind), getattr(child.names, kind)
        seen = driver.observe(name)
        assert (seen.digest, seen.mark) == (DIGEST, child.mark)
        assert name in [each.name for each in driver.list_owned() if each.mark == child.mark]
        assert driver.create(child.request(kind)) == seen
    for kind in ("key", "bucket", "role", "database"):
        driver, name = getattr(drivers, kind), getattr(child.names, kind)
        driver.delete(name, child.mark)
        driver.delete(name, child.mark)
        assert driver.observe(name) == Absent()
        assert name not in [each.name for each in driver.list_owned()]


@pytest.mark.parametrize(("fault", "word"), HTTP_FAULTS.items())
def test_trouble_with_the_object_store_is_unknown_at_every_call(
    http: MakeHttp, drivers: Drivers, fault: str, word: str
):
    child = drivers.make(Child(Owner.TIER), "bucket", "key")
    drivers.make(Child(tier=child), "key")
    for kind in ("bucket", "key"):
        name = getattr(child.names, kind)
        proxy, broken = http("")
        assert isinstance(getattr(broken, kind).observe(name), Present)
        for at in range(1, proxy.seen + 1):
            _, broken = http(fault, at)
            seen = getattr(broken, kind).observe(name)
            assert isinstance(seen, Unknown), (kind, at)
            assert seen.word in word.split("|"), (kind, at)
    _, broken = http(fault)
    with pytest.raises(UnknownState, match=word):
        broken.bucket.list_owned()
    with pytest.raises(DriverRefused, match=word):
        broken.key.delete(child.names.key, child.mark)


def test_a_wrong_key_or_no_server_is_unknown(parents: LabParents, drivers: Drivers):
    child = drivers.make(Child(), "bucket")
    wrong = replace(parents.objects, admin=KeyPair(parents.objects.admin.access_key, b"wrong"))
    assert Drivers.over(parents.postgres, wrong).bucket.observe(child.names.bucket) == Unknown("denied")
    nowhere = replace(parents.objects, endpoint=f"http://127.0.0.1:{_free_port()}")
    assert Drivers.over(parents.postgres, nowhere).bucket.observe(child.names.bucket) == Unknown("unreachable")


def test_trouble_with_postgres_is_unknown(
    parents: LabParents, drivers: Drivers, postgres: MakePostgres, admin: psycopg.Connection
):
    child = drivers.make(Child(), "database", "role")

    def seen(parent: PostgresParent) -> set[object]:
        over = Drivers.over(parent, parents.objects)
        return {over.database.observe(child.names.database), over.role.observe(child.names.role)}

    assert seen(replace(parents.postgres, port=_free_port())) == {Unknown("unreachable")}
    assert seen(replace(parents.postgres, password=b"wrong")) == {Unknown("credentialRefused")}
    own_login = replace(parents.postgres, user=child.names.role, password=child.password)
    assert seen(own_login) == {Unknown("denied")}
    for fault, word in {"cut": "connectionLost", "late": "connectionLost", "hang": "timedOut"}.items():
        for kind in ("database", "role"):
            _, broken = postgres(fault, b"SELECT")
            assert getattr(broken, kind).observe(getattr(child.names, kind)) == Unknown(word), (fault, kind)

    all_ended = threading.Event()

    def end_sessions() -> None:
        admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")
        until(lambda: not _others(admin), "every session has ended")
        all_ended.set()

    _, broken = postgres("", b"SELECT", before=end_sessions)
    assert broken.database.observe(child.names.database) == Unknown("shuttingDown")
    # The proxy asks over the same connection that is closed when this test ends.
    assert all_ended.wait(30)


def test_a_parent_without_a_free_connection_is_unknown(
    parents: LabParents, drivers: Drivers, admin: psycopg.Connection
):
    child = drivers.make(Child(), "database", "role")
    # What earlier tests left hanging would make room again.
    until(lambda: not _others(admin), "every session has ended")
    held: list[psycopg.Connection] = []
    try:
        with pytest.raises(psycopg.OperationalError):
            while True:
                held.append(_admin_connection(parents.postgres))
        assert drivers.database.observe(child.names.database) == Unknown("tooMany")
        assert drivers.role.observe(child.names.role) == Unknown("tooMany")
        with pytest.raises(DriverRefused, match="tooMany"):
            drivers.role.delete(child.names.role, child.mark)
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize("fault", ["500", "cut", "late", "half", pytest.param("hang", marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["bucket", "key"])
def test_a_creation_or_deletion_that_breaks_at_any_call_leaves_nothing_without_a_mark(
    http: MakeHttp, drivers: Drivers, fault: str, kind: str
):
    base = drivers.make(Child(), "bucket")
    whole = Child()
    counting, broken = http("")
    getattr(broken, kind).create(replace(whole.request(kind), target=base.names.bucket))
    creating = counting.seen
    getattr(broken, kind).delete(getattr(whole.names, kind), whole.mark)
    for at in range(1, creating + 1):
        child = Child()
        name = getattr(child.names, kind)
        _, broken = http(fault, at)
        request = replace(child.request(kind), target=base.names.bucket)
        outcome = _outcome(lambda b=broken, r=request: getattr(b, kind).create(r))
        _is_absent_or_ours(drivers, kind, child, refused=outcome is DriverRefused)
        getattr(drivers, kind).delete(name, child.mark)
        assert getattr(drivers, kind).observe(name) == Absent()
    for at in range(1, counting.seen - creating + 1):
        child = Child()
        name = getattr(child.names, kind)
        made = getattr(drivers, kind).create(replace(child.request(kind), target=base.names.bucket))
        _, broken = http(fault, at)
        outcome = _outcome(lambda b=broken, c=child, n=name: getattr(b, kind).delete(n, c.mark))
        if outcome is DriverRefused:
            assert getattr(drivers, kind).observe(name) == made
        _is_absent_or_ours(drivers, kind, child, refused=False)
        getattr(drivers, kind).delete(name, child.mark)
        assert getattr(drivers, kind).observe(name) == Absent()


@pytest.mark.parametrize("fault", ["cut", "hang", "late"])
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("database", b"CREATE ROLE"),
        ("database", b"CREATE DATABASE"),
        ("database", b"REVOKE ALL ON SCHEMA"),
        ("database", b"REVOKE ALL ON DATABASE"),
        ("database", b"COMMIT"),
        ("role", b"CREATE ROLE"),
        ("role", b"GRANT"),
        ("role", b"COMMIT"),
    ],
)
def test_a_statement_whose_answer_is_lost_leaves_nothing_without_a_mark(
    postgres: MakePostgres, drivers: Drivers, fault: str, kind: str, word: bytes
):
    child = Child()
    if kind == "role":
        drivers.make(child, "database")
    _, broken = postgres(fault, word)
    assert _outcome(lambda: getattr(broken, kind).create(child.request(kind))) is DispatchLost
    time.sleep(0.2)  # what is under way at the server ends; nothing is asserted about when
    _is_absent_or_ours(drivers, kind, child, refused=False)
    for each in ("role", "database"):
        getattr(drivers, each).delete(getattr(child.names, each), child.mark)
        assert getattr(drivers, each).observe(getattr(child.names, each)) == Absent()


def test_what_an_operator_began_who_is_gone_keeps_nobody_waiting(postgres: MakePostgres, drivers: Drivers):
    gone, other = drivers.make(Child(), "database", "role"), drivers.make(Child(), "database")
    # The proxy keeps his session open at the server, with the lock on changes of roles.
    _, broken = postgres("hang", b"DROP ROLE")
    assert _outcome(lambda: broken.role.delete(gone.names.role, gone.mark)) is DispatchLost
    drivers.make(other, "role")


def _patience(fault: str) -> float:
    """For how many seconds an answer is awaited: long, where the fault isn't that none comes."""
    return 1.5 if fault == "hang" else 30


def _outcome(call: Callable[[], object]) -> type[BaseException] | None:
    try:
        call()
    except (DispatchLost, DriverRefused) as error:
        assert "secret words" not in str(error)
        return type(error)
    return None


def _is_absent_or_ours(drivers: Drivers, kind: str, child: Child, *, refused: bool) -> None:
    driver, name = getattr(drivers, kind), getattr(child.names, kind)
    seen = driver.observe(name)
    owned = [each.mark for each in driver.list_owned() if each.name == name]
    if seen == Absent():
        assert owned == []
    else:
        assert not refused
        assert isinstance(seen, Present)
        assert seen.mark == child.mark
        assert owned == [child.mark]


def _others(admin: psycopg.Connection) -> int:
    row = admin.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def _admin_connection(parent: PostgresParent) -> psycopg.Connection:
    return psycopg.connect(
        host=parent.host, port=parent.port, user=parent.user, password=parent.password.decode(), dbname="postgres"
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
