"""Loading hosted environments: typed and frozen values; everything wrong named with file, line and key."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine.errors import ExitCode, InvalidInput
from engine.registry.environments import MEMBERS_PER_TIER, load_environments
from engine.registry.environments_model import AccessPolicy, Lifetime
from tests.unit.hosted import ENVIRONMENTS, MEMBER, OWN, PIN, TIER, write_environments

FILE = "inventory/environments.yaml"


def refusal(root: Path, old: str, new: str) -> InvalidInput:
    assert old in ENVIRONMENTS
    with pytest.raises(InvalidInput) as caught:
        load_environments(write_environments(root, ENVIRONMENTS.replace(old, new, 1)))
    assert caught.value.exit_code is ExitCode.USAGE
    assert f"{FILE}:" in caught.value.where
    return caught.value


def test_a_whole_file(tmp_path: Path) -> None:
    found = load_environments(write_environments(tmp_path))
    own, member = found.environments.values()
    assert (own.uuid, own.lifetime, own.tier, own.access_policy) == (OWN, Lifetime.DURABLE, None, AccessPolicy.INVITED)
    assert (own.hostname, str(own.subject)) == ("shop.example.com", f"env/{OWN}")
    assert (member.tier, member.lifetime) == ("common", Lifetime.DISPOSABLE)
    assert found.members_of("common") == (member,)
    assert str(found.tiers["common"].subject) == f"tier/{TIER}"
    assert found.parents is not None and found.parents.postgres.accepts(PIN)
    assert not found.parents.objects.accepts("sha256:" + "1" * 64)
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.stage = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.environments[OWN] = own  # type: ignore[index]


def test_a_fleet_without_the_file_hosts_nothing(tmp_path: Path) -> None:
    found = load_environments(tmp_path)
    assert (found.parents, dict(found.environments)) == (None, {})


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tier: common", "tier: other", "tier: there is no tier other"),
        (
            "tier: common",
            "tier: common\n    hostname: a.example.com",
            "hostname: a member of a tier has no public name",
        ),
        (
            "project: shop}",
            "project: shop, retired: true}",
            "retired: a tier retires only without members, this one has 1",
        ),
        (TIER, OWN, f"{OWN} is the uuid of an environment already"),
        (OWN, "../../etc", "wanted a uuid"),
        (OWN, OWN.upper(), "wanted a uuid"),
        ("release: first", "release: ../first", "release: wanted a slug"),
        ("stage: production", "stage: Prod/uction", "stage: wanted a slug"),
        ("project: shop\n", "project: house\n", "project: there is no project house"),
        ("lifetime: durable", "lifetime: forever", "lifetime: wanted durable or disposable"),
        (PIN, "sha256:abc", "pin: wanted sha256: and 64"),
        ("hostname: shop.example.com", f"restore: {{environment: {OWN}, backup: b1}}", "never restored in place"),
        ("hostname: shop.example.com", "colour: red", "colour: unknown key"),
    ],
)
def test_a_bad_entry_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert message in refusal(tmp_path, old, new).message


@pytest.mark.parametrize("name", ["shop.example.com", "Shop.EXAMPLE.com", "shop.example.com."])
def test_a_public_name_that_is_there_twice(tmp_path: Path, name: str) -> None:
    other = "6d1f1c1c-0b8e-4e55-8a4f-1d2f6d8e7a10"
    start = ENVIRONMENTS.index(f"  {OWN}:")
    entry = ENVIRONMENTS[start : ENVIRONMENTS.index(f"  {MEMBER}:")]
    text = ENVIRONMENTS + entry.replace(OWN, other).replace("shop.example.com", name)
    with pytest.raises(InvalidInput, match=rf"{other}.hostname: {name} is the public name of {OWN} already"):
        load_environments(write_environments(tmp_path, text))
    assert load_environments(write_environments(tmp_path, f"{text}    retired: true\n")).environments[other].retired


def test_a_uuid_that_is_there_twice(tmp_path: Path) -> None:
    member = ENVIRONMENTS.split("environments:\n")[1].split(":")[0].strip()
    other = ENVIRONMENTS[ENVIRONMENTS.rindex("  9b1deb4d") :].split(":")[0].strip()
    assert member == OWN
    error = refusal(tmp_path, other, OWN)
    assert OWN in str(error)


def test_a_member_of_another_projects_tier(tmp_path: Path) -> None:
    text = ENVIRONMENTS.replace("projects:\n", "projects:\n  other: {title: Other}\n").replace(
        "project: shop}", "project: other}"
    )
    with pytest.raises(InvalidInput, match="tier common is in project other"):
        load_environments(write_environments(tmp_path, text))


def test_a_tier_with_more_members_than_a_bucket_has_room_for_keys(tmp_path: Path) -> None:
    member = ENVIRONMENTS[ENVIRONMENTS.rindex("  9b1deb4d") :]
    name = member.split(":")[0].strip()
    others = [member.replace(name, f"9b1deb4d-3b7d-4bad-9bdd-{number:012x}") for number in range(MEMBERS_PER_TIER)]
    assert load_environments(write_environments(tmp_path, ENVIRONMENTS + "".join(others[1:])))
    with pytest.raises(InvalidInput, match="a tier has at most 250 members, this one has 251"):
        load_environments(write_environments(tmp_path, ENVIRONMENTS + "".join(others)))
