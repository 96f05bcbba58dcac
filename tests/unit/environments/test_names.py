"""Every derived name against every other: lengths, alphabets, no collisions, back to the uuid."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.environments.names import Owner, canonical, names_of, uuid_of, worker_of
from engine.errors import InvalidInput

UUID = "0c7d3c5e-94a1-4a3f-8f52-3b6f5b1f0a9e"
RULES = {
    # A lab host's slug, an identifier of PostgreSQL without quotes, a bucket, an IAM name, an id in a URL's path.
    "gateway": r"[a-z][a-z0-9-]{0,30}[a-z0-9]",
    "web": r"[a-z][a-z0-9-]{0,30}[a-z0-9]",
    "database": r"[a-z_][a-z0-9_]{0,62}",
    "role": r"[a-z_][a-z0-9_]{0,62}",
    "bucket": r"(?!xn--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]",
    "key": r"[a-z0-9-]{1,64}",
    "route": r"[a-z0-9-]{1,64}",
}
owners = st.sampled_from(Owner)
uuids = st.uuids().map(str)


def test_the_table_of_one_uuid() -> None:
    found = names_of(UUID)
    assert (found.gateway, found.web) == ("env-br6tyxuuuffd7d2shnxvwhykty-g", "env-br6tyxuuuffd7d2shnxvwhykty-w")
    assert found.database == "ns_e_0c7d3c5e94a14a3f8f523b6f5b1f0a9e_db"
    assert found.role == "ns_e_0c7d3c5e94a14a3f8f523b6f5b1f0a9e_ro"
    assert (found.bucket, found.key) == (f"ns-e-{UUID.replace('-', '')}-bu", f"ns-e-{UUID.replace('-', '')}-ke")
    assert names_of(UUID, Owner.TIER).bucket == f"ns-t-{UUID.replace('-', '')}-bu"


@given(uuids, owners)
def test_every_name_keeps_its_kinds_rule_and_leads_back(uuid: str, owner: Owner) -> None:
    found = names_of(uuid, owner)
    for kind, rule in RULES.items():
        assert re.fullmatch(rule, getattr(found, kind), re.ASCII)
    assert len(set(found.every())) == len(RULES)
    assert {uuid_of(name) for name in found.every()} == {uuid}


@given(uuids, owners)
def test_the_name_of_a_tiers_worker_is_nobody_elses_and_leads_back(uuid: str, owner: Owner) -> None:
    assert re.fullmatch(r"ns-t-[0-9a-f]{32}-wk", worker_of(uuid), re.ASCII)
    assert worker_of(uuid) not in names_of(uuid, owner).every()
    assert uuid_of(worker_of(uuid)) == uuid
    assert uuid_of(worker_of(uuid).replace("ns-t", "ns-e")) is None


@given(uuids, uuids)
def test_two_uuids_and_two_owners_share_only_what_no_tier_has(one: str, other: str) -> None:
    of_one, tier = set(names_of(one).every()), set(names_of(one, Owner.TIER).every())
    assert of_one & tier == {names_of(one).gateway, names_of(one).web}
    assert one == other or not of_one & set(names_of(other).every())


@given(uuids, owners, st.data())
def test_no_changed_character_still_leads_to_the_same_uuid(uuid: str, owner: Owner, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(names_of(uuid, owner).every()))
    at = data.draw(st.integers(0, len(name) - 1))
    other = name[:at] + data.draw(st.sampled_from("az09_-A%/")) + name[at + 1 :]
    found = uuid_of(other)
    assert other == name or found is None or other in {*names_of(found).every(), *names_of(found, Owner.TIER).every()}


@pytest.mark.parametrize(
    "text", ["", UUID.upper(), UUID.replace("-", ""), f"{UUID}\n", f"{{{UUID}}}", "../../etc", "x"]
)
def test_only_one_spelling_is_a_uuid(text: str) -> None:
    with pytest.raises(InvalidInput):
        canonical(text)
    assert uuid_of(text) is None
