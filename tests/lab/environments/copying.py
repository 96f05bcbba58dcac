"""A fleet whose environments are their data alone, over the session's parents, as tests of copies want it."""

from __future__ import annotations

import hashlib
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from engine.environments import life
from engine.environments.copies import Copy
from engine.environments.copies.place import BUCKET
from engine.environments.drivers.base import Kind
from engine.environments.drivers.object_keys import ObjectKeys
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.objects_store import ObjectStore, client
from engine.environments.drivers.postgres import PostgresDatabases
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.postgres_roles import PostgresRoles
from engine.environments.hosting import Ended, Hosting, Job, back_up_job, converge, list_copies, run_job
from engine.environments.hosting.jobs import Work
from engine.environments.hosting.requests import Requests
from engine.environments.names import Owner
from engine.environments.observation import Unknown
from engine.environments.parents import LabParents, ParentKind, ParentSeen
from engine.environments.parents.programs import postgres_directory
from engine.environments.spec import TIER, Specification
from engine.errors import Refused
from engine.records import RunResult
from engine.registry.environments import load_environments
from engine.registry.environments_model import Lifetime
from engine.registry.load import load_fleet
from engine.subject import Subject
from engine.updater.events import Reporter, silent
from tests.unit.hosted import write_environments
from tests.unit.updater.clocks import FakeClock

TABLES = """
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
CREATE FUNCTION is_short(given text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE
    AS 'BEGIN RETURN length(given) < 99; END';
CREATE TABLE person (id serial PRIMARY KEY, name text CHECK (public.is_short(name)), mood mood, picture bytea);
CREATE TABLE "No te" (
    id bigint GENERATED ALWAYS AS IDENTITY (START 41), person integer NOT NULL REFERENCES person ON DELETE CASCADE,
    at timestamptz DEFAULT now(), "the text" text, worth positive, document jsonb,
    twice bigint GENERATED ALWAYS AS (person * 2) STORED
);
CREATE INDEX ON person (lower(name)) WHERE name <> '';
CREATE VIEW glad AS SELECT name FROM person WHERE mood = 'glad';
CREATE MATERIALIZED VIEW counted AS SELECT count(*) FROM person;
CREATE TABLE part (day date NOT NULL) PARTITION BY RANGE (day);
CREATE TABLE part_one PARTITION OF part FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.mood := ''sad''; RETURN NEW; END';
INSERT INTO person (name, mood, picture) VALUES
    ('Ana', 'glad', '\\x00ff0001'), ('Bj\u00f6rn \u2603 \U0001f600', NULL, NULL),
    ('', 'sad', ''), (E'tab\\tand\\\\.\\nline', 'glad', '\\x5c2e0a');
INSERT INTO "No te" (person, "the text", worth, document)
    VALUES (1, NULL, 7, '{"a": [1, null]}'), (2, '\\N', NULL, 'null');
INSERT INTO part VALUES ('2026-05-05');
CREATE TRIGGER touched BEFORE INSERT ON person FOR EACH ROW EXECUTE FUNCTION touched();
REFRESH MATERIALIZED VIEW counted;
SELECT setval('person_id_seq', 900);
SELECT lo_from_bytea(0, '\\x0102ff');
COMMENT ON TABLE person IS 'somebody';
"""

OBJECTS = {
    "plain.txt": b"plain",
    "a": b"beside",
    "a/b": b"below",
    "a b/c d&e+f=g?h#i": b"signs",
    "pro%20cent%2F": b"percent",
    "\u00fc/\u00f1\u2603": b"letters",
    "empty": b"",
    "k" * 200 + "/" + "l" * 200: b"long",
    "large": bytes(range(256)) * 80_000,
}
ABOUT = {
    "ContentType": "text/x-note; charset=utf-8",
    "CacheControl": "no-store",
    "Metadata": {"writer": "ana", "n": "1"},
}


@dataclass(frozen=True)
class Kept:
    """Both parents with connections that are kept and looked at once: making and hashing takes longer than using."""

    postgres: PostgresParent
    objects: ObjectStore
    seen: Mapping[ParentKind, ParentSeen | Unknown]

    @classmethod
    def of(cls, parents: LabParents) -> Kept:
        return cls(parents.postgres, parents.objects, {kind: parents.observe(kind) for kind in ParentKind})

    def observe(self, kind: ParentKind) -> ParentSeen | Unknown:
        return self.seen[kind]


@dataclass
class Fleet:
    """What the inventory and the journal of one state directory hold; a fresh one reads them anew."""

    root: Path
    parents: Kept
    clock: FakeClock = field(default_factory=FakeClock)
    specs: dict[str, Specification] = field(default_factory=dict)

    def add(self, lifetime: Lifetime = Lifetime.DURABLE, restore: tuple[str, str] | None = None) -> str:
        """A new entry of the inventory; its uuid."""
        found = str(uuid.uuid4())
        wanted = None if restore is None else {"environment": restore[0], "backup": restore[1]}
        settings = {"stage": "trial", "binding": {"restore": wanted}}
        self.specs[found] = Specification(found, Owner.ENVIRONMENT, lifetime, TIER, settings)
        return found

    def hosting(self, report: Reporter = silent) -> Hosting:
        """The fleet as a command opens it; only what its environments are made of is said by this test."""
        write_environments(self.root, self._text())
        hosting = Hosting(load_fleet(self.root), load_environments(self.root), self.root / "var", self.clock, report)
        postgres, objects = self.parents.postgres, self.parents.objects
        drivers = (PostgresDatabases(postgres), PostgresRoles(postgres), Buckets(objects), ObjectKeys(objects))
        by_kind = {driver.kind: driver for driver in drivers}
        vars(hosting).update(parents=self.parents, drivers=by_kind, specifications=self.specs)
        return hosting

    def afresh(self) -> Fleet:
        """The same with connections of its own, for another process: two never speak over one."""
        return replace(self, parents=replace(self.parents, objects=replace(self.parents.objects)))

    def run(self, uuid: str, work: Work, report: Reporter = silent) -> Ended:
        return run_job(self.hosting(report), Subject("env", uuid), "test", work)

    def made(self, **about: Any) -> str:
        """A new environment that is ready."""
        found = self.add(**about)
        ended = self.run(found, converge)
        assert ended.error is None, ended.error
        return found

    def name(self, uuid: str, kind: Kind) -> str:
        return self.specs[uuid].name(kind)

    def login(self, uuid: str, *, to: str | None = None) -> psycopg.Connection[Any]:
        """A connection of the environment's own role."""
        credentials = self.hosting().credentials.ensure(uuid)
        postgres = self.parents.postgres
        return psycopg.connect(
            host=postgres.host,
            port=postgres.port,
            user=self.name(uuid, Kind.ROLE),
            password=credentials.password,
            dbname=self.name(to or uuid, Kind.DATABASE),
            autocommit=True,
        )

    def key(self, uuid: str) -> Any:
        """A client with the environment's own key."""
        store, pair = self.parents.objects, self.hosting().credentials.ensure(uuid).key_pair
        return client(store.endpoint, "s3", pair, session=store.session)

    def fill(self, uuid: str, objects: Mapping[str, bytes] = OBJECTS, tables: str = TABLES) -> None:
        """Write awkward data as the environment itself does."""
        with self.login(uuid) as connection:
            connection.execute(tables)
        bucket, key = self.name(uuid, Kind.BUCKET), self.key(uuid)
        for name, content in objects.items():
            key.put_object(Bucket=bucket, Key=name, Body=content, **ABOUT)

    def objects_of(self, uuid: str) -> dict[str, tuple[str, str, str, dict[str, str]]]:
        """Every object by its key: digest, content type, cache rule and metadata."""
        s3, bucket = self.parents.objects.s3, self.name(uuid, Kind.BUCKET)
        found = {}
        for item in s3.list_objects_v2(Bucket=bucket).get("Contents", []):
            answer = s3.get_object(Bucket=bucket, Key=item["Key"])
            digest = hashlib.sha256(answer["Body"].read()).hexdigest()
            found[item["Key"]] = (digest, answer["ContentType"], answer.get("CacheControl", ""), answer["Metadata"])
        return found

    def _text(self) -> str:
        lines = ["parents:", *(f"  {kind}: {{pin: '{_digest(self.parents.observe(kind))}'}}" for kind in ParentKind)]
        lines += ["projects: {shop: {title: The shop}}", "environments:"]
        for found, spec in self.specs.items():
            lines += [
                f"  {found}:",
                "    {project: shop, tenant: maple, stage: trial, release: first,",
                f"    lifetime: {spec.lifetime}{_restore(spec)}}}",
            ]
        return "\n".join(lines) + "\n"


def _digest(seen: ParentSeen | Unknown) -> str:
    assert isinstance(seen, ParentSeen), seen
    return seen.digest


def _restore(spec: Specification) -> str:
    wanted = spec.settings["binding"]["restore"]
    return f", restore: {{environment: {wanted['environment']}, backup: {wanted['backup']}}}" if wanted else ""


def dumped(fleet: Fleet, uuid: str) -> str:
    """The database of `uuid` as one text, in which every name of its own is the same for all."""
    postgres, name = fleet.parents.postgres, fleet.name(uuid, Kind.DATABASE)
    done = subprocess.run(
        [
            *(str(postgres_directory() / "pg_dump"), "--no-privileges", "--exclude-schema=tenantry"),
            *("--host", postgres.host, "--port", str(postgres.port), "--username", postgres.user, name),
        ],
        env={"PGPASSWORD": postgres.password.decode(), "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith(("\\restrict", "\\unrestrict"))]
    return "\n".join(lines).replace(fleet.name(uuid, Kind.ROLE), "the_role")


def copied(fleet: Fleet, uuid: str) -> Copy:
    ended = fleet.run(uuid, back_up_job)
    assert (ended.error, ended.result) == (None, RunResult.BACKED_UP)
    return next(copy for copy in list_copies(fleet.hosting(), uuid) if copy.id in ended.done)


def keys_below(fleet: Fleet, prefix: str) -> list[str]:
    answer = fleet.parents.objects.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [item["Key"] for item in answer.get("Contents", [])]


def stores_alone(job: Job) -> Ended:
    """Make the database and the bucket of a new environment, and end before anything is loaded."""
    spec = job.hosting.specifications[job.uuid]

    def stop() -> None:
        raise Refused("this is far enough")

    life.create(job.hosting.parts, spec, Requests(job.hosting, spec), seed=stop)
    raise AssertionError("it was not stopped")
