"""Reads a fleet directory's hosted environments into frozen values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.registry.environments_model import (
    AccessPolicy,
    Environment,
    Environments,
    Lifetime,
    ParentPins,
    Parents,
    Project,
    RestoreFrom,
    Tier,
)
from engine.registry.formats import plain_hostname
from engine.registry.freeze import freeze
from engine.registry.schema import Problem, check, raise_problems, read_schema
from engine.registry.yaml_loader import load

ENVIRONMENTS_FILE = Path("inventory/environments.yaml")

MEMBERS_PER_TIER = 250
"""As many keys have room in the policy of one bucket, which may have 20 KiB in the lab's store and in S3."""

_Records = Mapping[str, Mapping[str, Any]]


def load_environments(root: Path) -> Environments:
    """Read the environments of the fleet directory `root`; a fleet without the file has none.

    Raises :class:`InvalidInput` naming file, line and key of everything that is wrong.
    """
    path = root / ENVIRONMENTS_FILE
    if not path.is_file():
        return Environments()
    document = load(path)
    check(document, read_schema("engine.registry", "environments.json"))
    content = document.value
    raise_problems(document, [*_tier_problems(content), *_environment_problems(content)])
    return Environments(
        Parents(**{name: ParentPins(**freeze(pins)) for name, pins in content["parents"].items()}),
        _mapping({slug: Project(slug, **record) for slug, record in content["projects"].items()}),
        _mapping({slug: Tier(slug, **record) for slug, record in content.get("tiers", {}).items()}),
        _mapping({uuid: _environment(uuid, record) for uuid, record in content.get("environments", {}).items()}),
    )


def _mapping(values: dict[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType(values)


def _environment(uuid: str, record: Mapping[str, Any]) -> Environment:
    typed = {
        **record,
        "lifetime": Lifetime(record["lifetime"]),
        "access_policy": AccessPolicy(record.get("access_policy", Environment.access_policy)),
        "restore": RestoreFrom(**record["restore"]) if "restore" in record else None,
    }
    return Environment(uuid, **typed)


def _tier_problems(content: Mapping[str, Any]) -> Iterator[Problem]:
    environments: _Records = content.get("environments", {})
    owners = dict.fromkeys(environments, "an environment")
    for slug, tier in content.get("tiers", {}).items():
        yield from _unknown_project(content, ("tiers", slug), tier["project"])
        if (other := owners.setdefault(tier["uuid"], f"tier {slug}")) != f"tier {slug}":
            yield Problem(("tiers", slug, "uuid"), f"{tier['uuid']} is the uuid of {other} already")
        members = sum(item.get("tier") == slug and not item.get("retired") for item in environments.values())
        if tier.get("retired") and members:
            message = f"a tier retires only without members, this one has {members}"
            yield Problem(("tiers", slug, "retired"), message, "retire them first")
        if members > MEMBERS_PER_TIER:
            message = f"a tier has at most {MEMBERS_PER_TIER} members, this one has {members}"
            yield Problem(("tiers", slug), message, "give it a second tier for the others")


def _environment_problems(content: Mapping[str, Any]) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for uuid, record in content.get("environments", {}).items():
        path = ("environments", uuid)
        if "hostname" in record and not record.get("retired"):
            # A name is free again once the entry that had it is retired.
            other = owners.setdefault(plain_hostname(record["hostname"]), uuid)
            if other != uuid:
                yield Problem((*path, "hostname"), f"{record['hostname']} is the public name of {other} already")
        yield from _unknown_project(content, path, record["project"])
        if "tier" in record:
            yield from _member_problems(content, path, record)
        if "restore" in record:
            yield from _restore_problems(content, path, record["restore"]["environment"])


def _unknown_project(content: Mapping[str, Any], path: tuple[str, ...], project: str) -> Iterator[Problem]:
    if project not in content["projects"]:
        known = ", ".join(content["projects"]) or "none"
        yield Problem((*path, "project"), f"there is no project {project}", f"known: {known}")


def _member_problems(content: Mapping[str, Any], path: tuple[str, ...], record: Mapping[str, Any]) -> Iterator[Problem]:
    tiers: _Records = content.get("tiers", {})
    tier = tiers.get(record["tier"])
    if tier is None:
        yield Problem((*path, "tier"), f"there is no tier {record['tier']}", f"known: {', '.join(tiers) or 'none'}")
    elif tier["project"] != record["project"]:
        yield Problem((*path, "tier"), f"tier {record['tier']} is in project {tier['project']}")
    if "hostname" in record:
        yield Problem((*path, "hostname"), "a member of a tier has no public name", "give it storage of its own")
    if "restore" in record:
        yield Problem((*path, "restore"), "a member of a tier owns no storage to restore into")


def _restore_problems(content: Mapping[str, Any], path: tuple[str, ...], source: str) -> Iterator[Problem]:
    place = (*path, "restore", "environment")
    record = content["environments"].get(source)
    if source == path[-1]:
        yield Problem(place, "an environment is never restored in place", "give the restored one a new uuid")
    elif record is not None and "tier" in record:
        yield Problem(place, "a member of a tier carries no backup")
