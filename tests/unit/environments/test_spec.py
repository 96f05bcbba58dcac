"""Specifications and bindings: values with one text and one digest, and three key sets that must agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from engine.environments.binding import BASE_KEYS, HostedRelease, bind, check_keys
from engine.environments.drivers.base import Kind
from engine.environments.spec import MEMBER, OWN_STORAGE, TIER, of_environment, of_tier, read
from engine.errors import InvalidInput
from engine.registry.environments import load_environments
from engine.registry.environments_model import Environments, Lifetime
from tests.unit.hosted import MEMBER as MEMBER_UUID
from tests.unit.hosted import OWN, write_environments
from tests.unit.hosted import TIER as TIER_UUID

PLAIN = HostedRelease("first", "sha256:" + "5" * 64, BASE_KEYS, BASE_KEYS)
ADMIN = "bootstrap_admin"
MORE = frozenset({ADMIN})
DECLARING = replace(PLAIN, gateway_keys=BASE_KEYS | MORE, manifest_keys=BASE_KEYS | MORE, extensions=MORE)


@pytest.fixture
def inventory(tmp_path: Path) -> Environments:
    return load_environments(write_environments(tmp_path))


def test_the_specifications_of_an_inventory(inventory: Environments) -> None:
    own = of_environment(inventory.environments[OWN], inventory, PLAIN, "acme")
    member = of_environment(inventory.environments[MEMBER_UUID], inventory, PLAIN, "acme")
    tier = of_tier(inventory.tiers["common"], "acme")
    assert (own.kinds, member.kinds, tier.kinds) == (OWN_STORAGE, MEMBER, TIER)
    assert len(own.kinds) == 6
    assert json.loads(own.canonical())["binding"] == {
        "access_policy": "invited",
        "hostname": "shop.example.com",
        "restore": None,
        "tier": None,
    }
    assert json.loads(member.canonical())["storage"] == json.loads(member.canonical())["binding"]["tier"] == TIER_UUID
    assert (own.subject().kind, member.subject().kind, tier.subject().kind) == ("env", "env", "tier")
    assert (own.subject().durable, tier.subject().durable) == (True, True)
    lasting = replace(inventory.environments[MEMBER_UUID], lifetime=Lifetime.DURABLE)
    assert not of_environment(lasting, inventory, PLAIN, "acme").subject().durable


def test_a_specification_is_read_back_whole(inventory: Environments) -> None:
    for spec in (
        *(of_environment(item, inventory, PLAIN, "acme") for item in inventory.environments.values()),
        of_tier(inventory.tiers["common"], "acme"),
    ):
        found = read(spec.canonical())
        assert (found.canonical(), found.digest, found.kinds) == (spec.canonical(), spec.digest, spec.kinds)


@pytest.mark.parametrize(
    "change", [{"shape": 2}, {"owner": "nobody"}, {"resources": {}}, {"uuid": "../x"}, {"lifetime": 1}]
)
def test_another_shape_is_not_guessed_at(inventory: Environments, change: dict[str, object]) -> None:
    text = of_environment(inventory.environments[OWN], inventory, PLAIN, "acme").canonical()
    other = json.dumps({**json.loads(text), **change}, sort_keys=True, separators=(",", ":"))
    for wrong in (other, text + " ", text[:-1], "[]", "null", ""):
        with pytest.raises(InvalidInput):
            read(wrong)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stage", "other"),
        ("tenant", "oak"),
        ("release", "x"),
        ("hostname", "b.example.com"),
        ("lifetime", Lifetime.DISPOSABLE),
    ],
)
def test_every_immutable_field_is_in_the_digest(inventory: Environments, field: str, value: object) -> None:
    environment = inventory.environments[OWN]
    release = replace(PLAIN, name=str(value)) if field == "release" else PLAIN
    before = of_environment(environment, inventory, PLAIN, "acme")
    after = of_environment(replace(environment, **{field: value}), inventory, release, "acme")
    assert before.digest != after.digest
    assert before.resource_digest(Kind.ROLE) != after.resource_digest(Kind.ROLE)


def test_a_retirement_or_a_parents_successor_makes_no_other_environment(inventory: Environments) -> None:
    environment = inventory.environments[OWN]
    digest = of_environment(environment, inventory, PLAIN, "acme").digest
    assert inventory.parents is not None
    pins = replace(inventory.parents.postgres, successors=("sha256:" + "b" * 64,))
    other = replace(inventory, parents=replace(inventory.parents, postgres=pins))
    assert of_environment(replace(environment, retired=True), other, PLAIN, "acme").digest == digest
    assert of_environment(environment, inventory, PLAIN, "other").digest != digest


@pytest.mark.parametrize("key", sorted(BASE_KEYS))
def test_a_key_that_one_place_does_not_know_is_named(key: str) -> None:
    for field, place in (("gateway_keys", "the gateway"), ("manifest_keys", "the application manifest")):
        with pytest.raises(InvalidInput, match=f"{place} does not know {key}"):
            check_keys(replace(PLAIN, **{field: BASE_KEYS - {key}}))
        with pytest.raises(InvalidInput, match=f"{place} knows colour"):
            check_keys(replace(PLAIN, **{field: BASE_KEYS | {"colour"}}))


def test_an_optional_key_is_known_where_it_is_declared(inventory: Environments) -> None:
    check_keys(PLAIN)
    check_keys(DECLARING)
    with pytest.raises(InvalidInput, match=f"the gateway does not know {ADMIN}"):
        check_keys(replace(DECLARING, gateway_keys=BASE_KEYS))
    with pytest.raises(InvalidInput, match=f"the gateway knows {ADMIN}"):
        check_keys(replace(PLAIN, gateway_keys=BASE_KEYS | MORE))
    with pytest.raises(InvalidInput, match="declares colour"):
        check_keys(replace(DECLARING, extensions=MORE | {"colour"}))


def test_an_optional_key_goes_only_to_a_release_that_declares_it(inventory: Environments) -> None:
    environment = inventory.environments[OWN]
    led = replace(environment, bootstrap_admin="rosa@maple.example")
    assert set(bind(environment, inventory, PLAIN)) == BASE_KEYS
    assert bind(environment, inventory, DECLARING)[ADMIN] is None
    assert bind(led, inventory, DECLARING)[ADMIN] == "rosa@maple.example"
    with pytest.raises(InvalidInput, match=f"{ADMIN}: release first does not declare it"):
        bind(led, inventory, PLAIN)
