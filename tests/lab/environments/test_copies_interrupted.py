"""Copies and restores that are killed, put to sleep or overtaken, on PostgreSQL and SeaweedFS themselves."""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.environments.copies import database, streams
from engine.environments.drivers.base import Kind
from engine.environments.drivers.objects_store import ObjectStore
from engine.environments.hosting import (
    back_up_job,
    converge,
    copying,
    expire_copies,
    list_copies,
)
from engine.environments.journal import State
from tests.lab.environments.copying import Fleet, copied, dumped, keys_below, stores_alone
from tests.lab.waiting import until


def interrupted(fleet: Fleet, work: Callable[[Fleet], Any], call: int, by: signal.Signals, of: str = "") -> int:
    """Run `work` in a child that sends itself a signal at its `call`-th call to the object store; the child.

    With `of` only calls of that function are counted.
    """
    child = os.fork()
    if child == 0:
        left = [call]
        plain = ObjectStore.call

        def counted(self: ObjectStore, function: Callable[..., Any], **arguments: Any) -> Any:
            left[0] -= of in ("", function.__name__)
            if left[0] == 0:
                left[0] = -1
                os.kill(os.getpid(), by)
            return plain(self, function, **arguments)

        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ObjectStore, "call", counted)
                work(fleet.afresh())
        finally:
            os._exit(0)
    return child


def killed(fleet: Fleet, work: Callable[[Fleet], Any], call: int) -> bool:
    """Run `work` in a child that kills itself at its `call`-th call to the object store; whether it came that far."""
    _, status = os.waitpid(interrupted(fleet, work, call, signal.SIGKILL), 0)
    return os.WIFSIGNALED(status)


def test_a_copy_that_was_killed_is_none(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(source, {"one": b"1", "two": b"2"}, "CREATE TABLE t (n integer); INSERT INTO t VALUES (1)")
    calls, whole = 1, 0
    while killed(fleet, lambda child: child.run(source, back_up_job), calls):
        found = list_copies(fleet.hosting(), source)
        assert len(found) in (whole, whole + 1)
        whole, calls = len(found), calls + 4
    assert calls > 16
    later = fleet.clock.now() + datetime.timedelta(days=1)
    assert all(
        len(keys_below(fleet, f"{source}/{expired}")) == 0 for expired in expire_copies(fleet.hosting(), source, later)
    )
    left = fleet.hosting().copies.found(source)
    assert [*left] == [copy.id for copy in list_copies(fleet.hosting(), source)] and len(left) > whole


def test_a_restore_that_was_killed_is_repeated(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(source, {"one": b"1", "two": b"2"}, "CREATE TABLE t (n integer); INSERT INTO t VALUES (1)")
    copy = copied(fleet, source)
    wanted = dumped(fleet, source), fleet.objects_of(source)
    new = fleet.add(restore=(source, copy.id))
    fleet.run(new, stores_alone)
    calls = 1
    while killed(fleet, lambda child: copying.seed(child.hosting(), child.specs[new]), calls):
        calls += 2
    assert calls > 10
    ended = fleet.run(new, converge)
    assert (ended.error, ended.state) == (None, State.READY)
    assert (dumped(fleet, new), fleet.objects_of(new)) == wanted


def test_a_restore_that_was_killed_while_it_loads(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(
        source,
        {"one": b"1"},
        """
        CREATE FUNCTION waits() RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN true; END $$;
        CREATE TABLE first (n integer); INSERT INTO first VALUES (1);
        CREATE TABLE second (n integer CHECK (public.waits())); INSERT INTO second VALUES (1);
        """,
    )
    new = fleet.add(restore=(source, copied(fleet, source).id))
    fleet.run(new, stores_alone)
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE usename = %s AND wait_event = 'advisory'"
    with fleet.parents.postgres.connection(fleet.name(new, Kind.DATABASE)) as held:
        held.execute("SELECT pg_advisory_lock(4711)")
        child = os.fork()
        if child == 0:
            try:
                copying.seed(fleet.afresh().hosting(), fleet.specs[new])
            finally:
                os._exit(0)
        until(lambda: held.execute(waiting, (fleet.name(new, Kind.ROLE),)).fetchone() == (1,), "it waits")
        [loader] = loaders_of(fleet.name(new, Kind.DATABASE))
        password = fleet.hosting().credentials.ensure(new).password
        assert not any(password in shown(loader / name) for name in ("cmdline", "environ"))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        until(lambda: not loaders_of(fleet.name(new, Kind.DATABASE)), "the program ends with who started it")
        assert fleet.hosting().journal.required(new).state is State.CREATING
    assert fleet.run(new, converge).error is None
    assert (dumped(fleet, new), fleet.objects_of(new)) == (dumped(fleet, source), fleet.objects_of(source))


@pytest.mark.parametrize(("of", "call"), [("get_object", 1), ("get_object", 4), ("put_object", 1)])
def test_a_restore_that_slept_while_another_one_ended_changes_nothing(fleet: Fleet, of: str, call: int) -> None:
    """It sleeps before it looks at the database, between two objects, and right before it writes one."""
    source = fleet.made()
    fleet.fill(source, {"one": b"1", "two": b"2"}, "CREATE TABLE t (n integer); INSERT INTO t VALUES (1)")
    new = fleet.add(restore=(source, copied(fleet, source).id))
    fleet.run(new, stores_alone)
    sleeper = interrupted(fleet, lambda one: copying.seed(one.hosting(), one.specs[new]), call, signal.SIGSTOP, of)
    until(lambda: ") T " in shown(Path(f"/proc/{sleeper}/stat")), "it sleeps")
    assert fleet.run(new, converge).error is None
    with fleet.login(new) as connection:
        connection.execute("INSERT INTO t VALUES (2)")
        fleet.key(new).put_object(Bucket=fleet.name(new, Kind.BUCKET), Key="one", Body=b"changed")
        fleet.key(new).delete_object(Bucket=fleet.name(new, Kind.BUCKET), Key="two")
        before = dumped(fleet, new), fleet.objects_of(new)
        os.kill(sleeper, signal.SIGCONT)
        os.waitpid(sleeper, 0)
        connection.execute("SELECT 1")
    assert (dumped(fleet, new), fleet.objects_of(new)) == before


def test_a_dump_may_take_longer_than_a_session_may_be_idle(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    source, plain = fleet.made(), streams.put
    fleet.fill(source, {}, "CREATE TABLE t (n integer); INSERT INTO t VALUES (1)")
    idle = "SELECT FROM pg_stat_activity WHERE datname = %s AND state LIKE 'idle in transaction%%'"
    name = fleet.name(source, Kind.DATABASE)

    def slow(*arguments: Any, **more: Any) -> Any:
        with fleet.parents.postgres.connection() as asking:
            until(lambda: asking.execute(idle, (name,)).fetchone() is None, "no session is idle, or one was ended")
        return plain(*arguments, **more)

    monkeypatch.setattr(database, "COUNT_SECONDS", 5.0)
    monkeypatch.setattr(streams, "put", slow)
    assert copied(fleet, source).dump.rows == {"public.t": 1}


def loaders_of(database: str) -> list[Path]:
    """The directories below /proc of every running pg_restore into `database`."""
    lines = ((path.parent, shown(path)) for path in Path("/proc").glob("[0-9]*/cmdline"))
    return [process for process, line in lines if "pg_restore" in line and database in line]


def shown(path: Path) -> str:
    """What a file below /proc says; nothing once its process is gone."""
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""
