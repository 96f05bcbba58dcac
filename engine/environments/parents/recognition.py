"""Whether a parent is the one that is meant: what runs, by its digest, and whether it has the shape it must have."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

import httpx

from engine.environments.drivers.objects_store import ObjectStore, part
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.drivers.trouble import ProviderTrouble, Trouble
from engine.environments.observation import Unknown
from engine.environments.words import Refusal
from engine.errors import EnvironmentRefused, UnknownState
from engine.registry.environments_model import ParentPins


class ParentKind(StrEnum):
    """The two parents, as the inventory calls them."""

    POSTGRES = "postgres"
    OBJECTS = "objects"


class Deviation(StrEnum):
    """What a parent must not be like; environments would not be apart on it."""

    OPEN_DATABASE = "ownDatabaseOpenToAll"
    WEAK_PASSWORDS = "passwordsNotScram"
    NOT_OUR_ADMINISTRATOR = "administratorIsNotSuperuser"
    FOREIGN_SUPERUSER = "anotherSuperuser"
    WRONG_VERSION = "versionTooOld"
    ANONYMOUS = "answersWithoutKey"


@dataclass(frozen=True)
class ParentSeen:
    """A parent that answered. `digest` is that of the program that runs, ``sha256:`` and 64 hexadecimal digits."""

    kind: ParentKind
    digest: str
    version: str
    deviations: tuple[Deviation, ...]


_SHAPE = """
SELECT current_setting('server_version'), current_setting('server_version_num')::int >= 150000,
       current_setting('password_encryption') = 'scram-sha-256',
       (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
       NOT EXISTS (SELECT FROM pg_roles WHERE rolsuper AND rolname <> current_user),
       NOT EXISTS (SELECT FROM pg_database d, aclexplode(coalesce(d.datacl, acldefault('d', d.datdba)))
                   WHERE grantee = 0 AND d.oid < 16384 AND d.datallowconn)
"""


def observe_postgres(parent: PostgresParent, digest: str) -> ParentSeen | Unknown:
    """Look at PostgreSQL, of which `digest` is known to run."""
    try:
        with parent.connection() as connection:
            row = connection.execute(_SHAPE).fetchone()
    except ProviderTrouble as trouble:
        return trouble.unknown
    if row is None:
        return Unknown(str(Trouble.UNREADABLE))
    version, *holds = row
    demands = (
        Deviation.WRONG_VERSION,
        Deviation.WEAK_PASSWORDS,
        Deviation.NOT_OUR_ADMINISTRATOR,
        Deviation.FOREIGN_SUPERUSER,
        Deviation.OPEN_DATABASE,
    )
    wrong = tuple(word for word, fine in zip(demands, holds, strict=True) if not fine)
    return ParentSeen(ParentKind.POSTGRES, digest, str(version).split()[0], wrong)


def observe_objects(store: ObjectStore, digest: str, version: str) -> ParentSeen | Unknown:
    """Look at the object store, of which `digest` is known to run; it does not say its version over S3."""
    try:
        part(store.call(store.s3.list_buckets), "Buckets", list)
        part(store.call(store.iam.list_users), "Users", list)
        # Plain HTTP, so there is nothing to verify: to read this machine's certificates takes longer than the answer.
        anonymous = httpx.get(store.endpoint, timeout=store.connect_seconds, trust_env=False, verify=False)
    except ProviderTrouble as trouble:
        return trouble.unknown
    except httpx.HTTPError:
        return Unknown(str(Trouble.CONNECTION_LOST))
    wrong = () if anonymous.status_code == HTTPStatus.FORBIDDEN else (Deviation.ANONYMOUS,)
    return ParentSeen(ParentKind.OBJECTS, digest, version, wrong)


def recognized(seen: ParentSeen, pins: ParentPins) -> bool:
    """Whether the pin, or a successor that an operator named, is what runs, in the right shape."""
    return not seen.deviations and pins.accepts(seen.digest)


def require(kind: ParentKind, seen: ParentSeen | Unknown, pins: ParentPins) -> ParentSeen:
    """Return the parent if it is recognized; raises `EnvironmentRefused` ``parentUnrecognized``, or `UnknownState`."""
    where = f"parent {kind}"
    if isinstance(seen, Unknown):
        raise UnknownState(seen.word, where=where, hint="tenantry lab parents show")
    if seen.deviations:
        raise EnvironmentRefused(Refusal.PARENT_UNRECOGNIZED, ", ".join(seen.deviations), where=where)
    if not pins.accepts(seen.digest):
        raise EnvironmentRefused(
            Refusal.PARENT_UNRECOGNIZED,
            f"{seen.digest} runs",
            where=where,
            hint=f"if that is meant, name it under parents.{kind}.successors in inventory/environments.yaml",
        )
    return seen
