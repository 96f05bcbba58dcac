"""Copies of environments and environments made from copies, on PostgreSQL and SeaweedFS themselves."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from botocore.exceptions import ClientError
from psycopg import sql

from engine.cli.app import run
from engine.environments.conditions import Verb
from engine.environments.copies import Place, Source, is_restored
from engine.environments.copies.database import holds_anything
from engine.environments.copies.manifest import write
from engine.environments.copies.place import BUCKET, MANIFEST, key
from engine.environments.drivers.base import Kind
from engine.environments.hosting import (
    back_up_job,
    converge,
    copying,
    expire_copies,
    expire_job,
    give_verb,
    list_copies,
    retire,
    with_due_copies,
)
from engine.environments.journal import State
from engine.environments.names import Owner, names_of
from engine.environments.observation import Mark
from engine.errors import ExitCode
from engine.records import RunResult
from engine.registry.environments import load_environments
from engine.registry.environments_model import Lifetime, RestoreFrom
from engine.updater.events import Event, Phase
from tests.cli.conftest import valid
from tests.lab.environments.copying import OBJECTS, Fleet, copied, dumped, keys_below, stores_alone
from tests.unit.hosted import ENVIRONMENTS, OWN, TIER, write_hosted_fleet


def test_a_new_environment_is_made_from_a_copy_and_the_source_stays_as_it_is(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(source)
    before = dumped(fleet, source), fleet.objects_of(source)
    copy = copied(fleet, source)
    assert copy.dump.rows == {"public.No te": 2, "public.part_one": 1, "public.person": 4}
    assert {item.key for item in copy.objects} == set(OBJECTS)
    new = fleet.made(restore=(source, copy.id))
    assert (dumped(fleet, new), fleet.objects_of(new)) == before
    assert (dumped(fleet, source), fleet.objects_of(source)) == before
    # It goes on as if it had made everything itself, and a later run changes nothing of that.
    with fleet.login(new) as connection:
        connection.execute("INSERT INTO person (name) VALUES ('Eve'); ALTER TABLE person ADD more text; DROP VIEW glad")
        assert connection.execute("SELECT max(id) FROM person").fetchone() == (901,)
        assert connection.execute("SELECT lo_get(oid) FROM pg_largeobject_metadata").fetchone() == (b"\x01\x02\xff",)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DROP SCHEMA tenantry")
    fleet.key(new).delete_object(Bucket=fleet.name(new, Kind.BUCKET), Key="empty")
    changed = dumped(fleet, new), fleet.objects_of(new)
    assert fleet.run(new, converge).result is RunResult.UNCHANGED
    assert (dumped(fleet, new), fleet.objects_of(new)) == changed != before
    assert (dumped(fleet, source), fleet.objects_of(source)) == before
    # And it is copied like any other.
    again = fleet.made(restore=(new, copied(fleet, new).id))
    assert (dumped(fleet, again), fleet.objects_of(again)) == changed
    written = [path.read_bytes() for path in (fleet.root / "var").rglob("*") if path.is_file() and not is_secret(path)]
    for uuid in (source, new, again):
        secrets = asdict(fleet.hosting().credentials.ensure(uuid))
        assert any(uuid.encode() in content for content in written)
        for secret in (secrets["password"], secrets["secret_key"], secrets["token"]):
            assert not any(secret.encode() in content for content in written)


def is_secret(path: Path) -> bool:
    """Whether a file is where an environment's credentials are kept."""
    return path.parent.name == "credentials"


def test_what_was_made_from_a_copy_is_apart_from_its_source_and_the_copies(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(source, {"one": b"1"}, "CREATE TABLE t (n integer); INSERT INTO t VALUES (1)")
    copy = copied(fleet, source)
    new = fleet.made(restore=(source, copy.id))
    for one, other in ((source, new), (new, source)):
        with pytest.raises(psycopg.OperationalError, match="permission denied"):
            fleet.login(one, to=other)
        own, bucket = fleet.key(one), fleet.name(other, Kind.BUCKET)
        manifest = {"Bucket": BUCKET, "Key": f"{source}/{copy.id}/manifest.json"}
        forbidden: list[tuple[Callable[..., Any], dict[str, Any]]] = [
            (own.get_object, {"Bucket": bucket, "Key": "one"}),
            (own.put_object, {"Bucket": bucket, "Key": "one", "Body": b""}),
            (own.list_objects_v2, {"Bucket": BUCKET}),
            (own.get_object, manifest),
            (own.put_object, {**manifest, "Body": b""}),
            (own.delete_object, manifest),
        ]
        for call, arguments in forbidden:
            with pytest.raises(ClientError, match="AccessDenied"):
                call(**arguments)


def test_what_a_dump_makes_the_server_run_has_no_more_rights_than_its_environment(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(
        source,
        {},
        """
        CREATE FUNCTION grab(given integer) RETURNS boolean LANGUAGE plpgsql AS $$
        BEGIN
            BEGIN
                EXECUTE 'RESET ROLE';
                EXECUTE 'RESET SESSION AUTHORIZATION';
                EXECUTE 'CREATE SCHEMA grabbed';
            EXCEPTION WHEN insufficient_privilege THEN
                RETURN true;
            END;
            RETURN true;
        END $$;
        CREATE TABLE t (n integer CHECK (public.grab(n)));
        INSERT INTO t VALUES (1);
        """,
    )
    new = fleet.made(restore=(source, copied(fleet, source).id))
    with fleet.login(new) as connection:
        assert connection.execute("SELECT FROM pg_namespace WHERE nspname = 'grabbed'").fetchone() is None
        owners = connection.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert owners == [(fleet.name(new, Kind.ROLE),)]


PLANTED = """
CREATE FUNCTION seize() RETURNS integer LANGUAGE plpgsql AS $$
BEGIN
    IF pg_catalog.current_setting('is_superuser') = 'on' THEN RAISE EXCEPTION 'an administrator ran this'; END IF;
    RETURN 1;
END $$;
-- Better matches than the server's own, wherever this schema is looked at.
CREATE FUNCTION obj_description(oid, text) RETURNS text LANGUAGE sql AS 'SELECT public.seize()::text';
CREATE FUNCTION pg_terminate_backend(integer, smallint) RETURNS boolean LANGUAGE sql AS 'SELECT public.seize() = 1';
-- What a planner works out beforehand, in whoever's query it is.
CREATE FUNCTION settled(given integer) RETURNS integer LANGUAGE sql IMMUTABLE AS 'SELECT public.seize() + given';
CREATE TABLE t (n integer);
CREATE INDEX ON t ((n + public.settled(1)));
CREATE INDEX ON t (n) WHERE public.settled(1) = 2;
CREATE STATISTICS expected ON (n + public.settled(2)), n FROM t;
ALTER TABLE t ADD CHECK (public.settled(n) > 0);
CREATE POLICY rows ON t USING (public.seize() = 1);
ALTER TABLE t ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
INSERT INTO t VALUES (1), (2);
"""


def test_an_administrator_runs_nothing_of_what_an_environment_has_made(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(source, {}, PLANTED)
    copy = copied(fleet, source)
    assert copy.dump.rows == {"public.t": 2}
    new = fleet.add(restore=(source, copy.id))
    fleet.run(new, stores_alone)
    copying.seed(fleet.hosting(), fleet.specs[new])
    # A creation that did not end looks at the same database again, which holds all that now.
    assert fleet.run(new, converge).error is None
    hosting = fleet.hosting()
    assert holds_anything(fleet.parents.postgres, fleet.name(new, Kind.DATABASE), fleet.name(new, Kind.ROLE))
    assert is_restored(fleet.parents.postgres, fleet.specs[new], Source(source, copy.id))
    assert fleet.run(new, back_up_job).error is None
    hosting.drivers[Kind.ROLE].delete(fleet.name(new, Kind.ROLE), Mark(new, role_intent(fleet, new)))


def role_intent(fleet: Fleet, uuid: str) -> str:
    [effect] = [each for each in fleet.hosting().journal.effects(uuid) if each.kind is Kind.ROLE]
    return effect.id


def test_an_empty_environment_is_copied_too(fleet: Fleet) -> None:
    source = fleet.made()
    new = fleet.made(restore=(source, copied(fleet, source).id))
    assert (dumped(fleet, new), fleet.objects_of(new)) == (dumped(fleet, source), {})


def test_a_copy_that_is_not_whole_is_refused_before_anything_is_made(fleet: Fleet) -> None:
    source = fleet.made()
    fleet.fill(source, {"one": b"1", "two": b"2"}, "CREATE TABLE t (n integer)")
    s3 = fleet.parents.objects.s3

    def refused(copy_id: str, word: str, uuid: str = source) -> None:
        new = fleet.add(restore=(uuid, copy_id))
        ended = fleet.run(new, converge)
        assert (ended.exit_code, ended.state) == (ExitCode.FAILED, None)
        assert ended.error is not None and word in ended.error
        del fleet.specs[new]

    copy = copied(fleet, source)
    refused("20260101T000000Z-00000000", "copyUnknown")
    refused("no-such-copy", "copyUnknown")
    refused(copy.id, "copyUnknown", uuid=fleet.add())
    place = f"{source}/{copy.id}"
    for name, content in (("objects/00000001", b"3"), ("objects/00000001", b"22"), ("database.dump", b"")):
        kept = s3.get_object(Bucket=BUCKET, Key=f"{place}/{name}")["Body"].read()
        s3.put_object(Bucket=BUCKET, Key=f"{place}/{name}", Body=content)
        refused(copy.id, "copyDamaged")
        s3.put_object(Bucket=BUCKET, Key=f"{place}/{name}", Body=kept)
    s3.delete_object(Bucket=BUCKET, Key=f"{place}/objects/00000000")
    refused(copy.id, "copyDamaged")
    s3.put_object(Bucket=BUCKET, Key=f"{place}/manifest.json", Body=b'{"format": 1}')
    refused(copy.id, "copyUnknown")
    assert list_copies(fleet.hosting(), source) == ()


def test_who_carries_a_copy(fleet: Fleet) -> None:
    passing = fleet.made(lifetime=Lifetime.DISPOSABLE)
    ended = fleet.run(passing, back_up_job)
    assert ended.exit_code is ExitCode.FAILED and "carriesNoBackup" in str(ended.error)
    source = fleet.made()
    copy = copied(fleet, source)
    assert fleet.run(source, retire).state == State.RETAINED
    ended = fleet.run(source, back_up_job)
    assert ended.exit_code is ExitCode.FAILED and "notReady" in str(ended.error)
    # What is retained can be restored from as before, into one that need not last.
    assert fleet.made(lifetime=Lifetime.DISPOSABLE, restore=(source, copy.id))


def test_the_copies_go_before_the_tombstone_and_only_after_the_retention(fleet: Fleet) -> None:
    source, other = fleet.made(), fleet.made()
    copied(fleet, source), copied(fleet, source)
    kept = copied(fleet, other)
    upload = fleet.parents.objects.s3.create_multipart_upload(Bucket=BUCKET, Key=f"{source}/x/database.dump")
    fleet.run(source, retire)
    until = fleet.hosting().journal.required(source).retained_until
    assert until is not None
    fleet.clock.slept += (until - fleet.clock.now()).total_seconds() - 1
    ended = fleet.run(source, give_verb(Verb.EXPIRE_RETAINED))
    assert ended.error is not None and "retentionRunning" in ended.error
    assert len(list_copies(fleet.hosting(), source)) == 2
    fleet.clock.slept += 1
    store = fleet.parents.objects
    store.s3.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": [{"Key": "tenantry", "Value": "somebody-else"}]})
    stopped = fleet.run(source, give_verb(Verb.EXPIRE_RETAINED))
    assert (stopped.state, "foreignResource" in str(stopped.error)) == (State.RECLAIMING, True)
    store.s3.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": [{"Key": "tenantry", "Value": "tenantry:1/copies"}]})
    assert fleet.run(source, give_verb(Verb.EXPIRE_RETAINED)).state == State.TOMBSTONED
    assert keys_below(fleet, f"{source}/") == []
    assert upload["UploadId"] not in str(store.s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads"))
    assert list_copies(fleet.hosting(), other) == (kept,)
    # What a job that was thought dead writes after all is found.
    store.s3.put_object(Bucket=BUCKET, Key=key(source, kept.id, "database.dump"), Body=b"late")
    assert [row.uuid for row in with_due_copies(fleet.hosting())] == [source]
    assert fleet.run(source, expire_job).done == (kept.id,)
    assert (with_due_copies(fleet.hosting()), keys_below(fleet, f"{source}/")) == ((), [])


def test_a_job_that_was_overtaken_leaves_no_copy(fleet: Fleet) -> None:
    source = fleet.made()
    journal = fleet.hosting().journal

    def overtake(event: Event) -> None:
        if event.phase is Phase.ARCHIVE:
            journal.writer(source).retire(datetime.timedelta(hours=168))

    ended = fleet.run(source, back_up_job, overtake)
    assert ended.exit_code is ExitCode.FAILED and "fenced" in str(ended.error)
    assert list_copies(fleet.hosting(), source) == ()


def test_old_copies_expire_except_the_newest_and_what_is_needed(fleet: Fleet) -> None:
    source = fleet.made()
    copies = []
    for _ in range(4):
        copies.append(copied(fleet, source))
        fleet.clock.slept += 3600
    early = fleet.hosting()
    fleet.add(restore=(source, copies[1].id))
    fleet.hosting()
    later = fleet.clock.now() + datetime.timedelta(days=30)
    assert expire_copies(fleet.hosting(), source, fleet.clock.now()) == ()
    assert expire_copies(early, source, later) == (copies[0].id, copies[2].id)
    assert list_copies(fleet.hosting(), source) == (copies[1], copies[3])
    assert keys_below(fleet, f"{source}/{copies[0].id}") == []
    assert expire_copies(fleet.hosting(), source, later) == ()


def test_copies_by_command(fleet: Fleet, parents_state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tier is its data alone, so it goes the whole way; an environment is as far made as its entry."""
    text = ENVIRONMENTS
    for kind, seen in fleet.parents.seen.items():
        text = re.sub(rf"(?m)^  {kind}: .*$", f"  {kind}: {{pin: '{getattr(seen, 'digest', None)}'}}", text)
    write_hosted_fleet(fleet.root, text)

    def tenantry(schema: str, *arguments: str, code: ExitCode = ExitCode.DONE) -> Any:
        capsys.readouterr()
        ended = run(["-C", str(fleet.root), "--state-dir", str(parents_state), *arguments, "--json"])
        said = capsys.readouterr()
        assert ended == code, said.err
        return valid(schema, json.loads(said.out)) if said.out else said.err

    role = names_of(TIER, Owner.TIER).role
    tenantry("env-run", "tier", "create", TIER)
    with fleet.parents.postgres.connection() as connection:
        # As an earlier version made it.
        connection.execute(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(role)))
        assert tenantry("env-run", "tier", "create", TIER)["subjects"][0]["state"] == "ready"
        look = "SELECT rolcanlogin FROM pg_roles WHERE rolname = %s"
        assert connection.execute(look, (role,)).fetchone() == (False,)
    [ended] = tenantry("env-run", "tier", "backup", "--all")["subjects"]
    [listed] = tenantry("env-backups", "tier", "backups")["copies"]
    assert (ended["result"], ended["done"]) == ("backed-up", [listed["copy"]])
    assert tenantry("env-run", "tier", "expire-backups", TIER)["subjects"][0]["result"] == "unchanged"
    assert "copyUnknown" in tenantry("", "env", "restore", OWN, "--backup", listed["copy"], code=ExitCode.FAILED)
    place = Place(fleet.parents.objects)
    copy = replace(place.copies(TIER)[0], uuid=OWN)
    fleet.parents.objects.s3.put_object(Bucket=BUCKET, Key=key(OWN, copy.id, MANIFEST), Body=write(copy))
    made = tenantry("env-new", "env", "restore", OWN, "--backup", copy.id, "--no-converge")
    entry = load_environments(fleet.root).environments[made["uuid"]]
    assert (entry.restore, entry.hostname) == (RestoreFrom(OWN, copy.id), None)
    # What it says of its content is not there.
    ended = run(["-C", str(fleet.root), "--state-dir", str(parents_state), "env", "create", made["uuid"]])
    assert (ended, "copyDamaged" in capsys.readouterr().err) == (ExitCode.FAILED, True)
