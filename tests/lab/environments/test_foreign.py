"""Look-alikes: whatever has a derived name but not our mark is never adopted and never deleted."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from engine.environments.drivers import claims
from engine.environments.drivers.base import Owned
from engine.environments.drivers.object_keys import ObjectKeys, policy_text
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.objects_store import ObjectStore
from engine.environments.drivers.trouble import ProviderTrouble
from engine.environments.names import Owner
from engine.environments.observation import Absent, Label, Mark, Present, Unknown
from engine.environments.parents import LabParents
from engine.errors import DispatchLost, DriverRefused, UnknownState
from tests.lab.environments.conftest import DIGEST, Child, Drivers

OTHER = Mark("11111111-2222-4333-8444-555555555555", "intent-9")
NOBODYS = json.dumps({"label": "somebody's", "access_key": ""}).encode()


def _is_left_alone(drivers: Drivers, kind: str, child: Child, mark: Mark | None = None) -> None:
    driver, name = getattr(drivers, kind), getattr(child.names, kind)
    before = driver.observe(name)
    assert isinstance(before, Present)
    assert before.mark == mark
    with pytest.raises(DriverRefused, match="foreignResource"):
        driver.create(child.request(kind))
    with pytest.raises(DriverRefused, match="foreignResource"):
        driver.delete(name, child.mark)
    assert driver.observe(name) == before
    assert [each for each in driver.list_owned() if each.name == name and each.mark == child.mark] == []


@pytest.mark.parametrize("comment", [None, "somebody's", "tenantry:1/role/u/i/d", "tenantry:1/database/u/i/d/more"])
def test_a_database_or_role_without_our_label(drivers: Drivers, admin: psycopg.Connection, comment: str | None):
    child = Child()
    for kind, create in (("database", "CREATE DATABASE {}"), ("role", "CREATE ROLE {} LOGIN")):
        name = sql.Identifier(getattr(child.names, kind))
        admin.execute(sql.SQL(create).format(name))
        if comment is not None and not (kind == "role" and "/role/" in comment):
            say = sql.SQL("COMMENT ON {} {} IS {}").format(sql.SQL(kind.upper()), name, sql.Literal(comment))
            admin.execute(say)
        _is_left_alone(drivers, kind, child)


def test_a_role_with_the_name_of_the_databases_owner(drivers: Drivers, admin: psycopg.Connection):
    child = Child()
    admin.execute(sql.SQL("CREATE ROLE {}").format(sql.Identifier(child.names.database)))
    _is_left_alone(drivers, "database", child)


def test_a_user_a_claim_or_a_bucket_without_our_label(drivers: Drivers, parents: LabParents):
    store = parents.objects
    makers: dict[str, Callable[[Child], object]] = {
        "user with a key": lambda child: (
            store.iam.create_user(UserName=child.names.key),
            store.iam.create_access_key(UserName=child.names.key),
        ),
        "user": lambda child: store.iam.create_user(UserName=child.names.key),
        "claim": lambda child: store.s3.put_object(
            Bucket=claims.BUCKET, Key=f"{child.names.key}@{child.names.bucket}", Body=NOBODYS
        ),
        "bucket": lambda child: store.s3.create_bucket(Bucket=child.names.bucket),
        "tagged bucket": lambda child: (
            store.s3.create_bucket(Bucket=child.names.bucket),
            store.s3.put_bucket_tagging(
                Bucket=child.names.bucket, Tagging={"TagSet": [{"Key": "tenantry", "Value": "of somebody"}]}
            ),
        ),
        "claim of a bucket": lambda child: store.s3.put_object(
            Bucket=claims.BUCKET, Key=child.names.bucket, Body=NOBODYS
        ),
    }
    for what, make in makers.items():
        child = Child()
        make(child)
        _is_left_alone(drivers, "bucket" if "bucket" in what else "key", child)


def test_what_another_intent_made(drivers: Drivers):
    mine = drivers.make(Child())
    for kind in ("database", "role", "bucket", "key"):
        driver, name = getattr(drivers, kind), getattr(mine.names, kind)
        with pytest.raises(DriverRefused, match="foreignResource"):
            driver.create(replace(mine.request(kind), intent_id="intent-2"))
        for mark in (OTHER, Mark(mine.uuid, "intent-2")):
            with pytest.raises(DriverRefused, match="foreignResource"):
                driver.delete(name, mark)
        assert driver.observe(name).mark == mine.mark


def test_a_bucket_of_ours_without_its_tags_is_foreign_once_there_is_something_in_it(
    drivers: Drivers, parents: LabParents
):
    child = drivers.make(Child(), "bucket")
    name = child.names.bucket
    parents.objects.s3.delete_bucket_tagging(Bucket=name)
    assert drivers.bucket.observe(name).mark == child.mark
    parents.objects.s3.put_object(Bucket=name, Key="somebody's", Body=b"data")
    assert drivers.bucket.observe(name).mark is None
    _is_left_alone(drivers, "bucket", child)


def test_what_comes_into_a_bucket_without_tags_after_it_was_looked_at_stays(drivers: Drivers, parents: LabParents):
    child = drivers.make(Child(), "bucket")
    name, store = child.names.bucket, ObjectStore(parents.objects.endpoint, parents.objects.admin)
    store.s3.delete_bucket_tagging(Bucket=name)

    def fill(**_: object) -> None:
        parents.objects.s3.put_object(Bucket=name, Key="somebody's", Body=b"data")

    for call in ("ListMultipartUploads", "DeleteBucket"):
        store.s3.meta.events.register_first(f"before-call.s3.{call}", fill)
    with pytest.raises(DriverRefused):
        Buckets(store).delete(name, child.mark)
    assert parents.objects.s3.get_object(Bucket=name, Key="somebody's")["Body"].read() == b"data"


def test_a_resource_that_was_changed_is_ours_but_not_as_it_was_made(
    drivers: Drivers, parents: LabParents, admin: psycopg.Connection
):
    child = drivers.make(Child())
    names = child.names
    wider = {"Effect": "Allow", "Action": ["s3:*"], "Resource": ["arn:aws:s3:::*"]}
    made = parents.objects.iam.create_policy(
        PolicyName=f"wider-{names.key}", PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [wider]})
    )
    parents.objects.iam.attach_user_policy(UserName=names.key, PolicyArn=made["Policy"]["Arn"])
    admin.execute(sql.SQL("GRANT CONNECT ON DATABASE {} TO PUBLIC").format(sql.Identifier(names.database)))
    admin.execute(sql.SQL("ALTER ROLE {} CREATEDB").format(sql.Identifier(names.role)))
    parents.objects.s3.put_bucket_tagging(
        Bucket=names.bucket,
        Tagging={"TagSet": [{"Key": "tenantry", "Value": f"tenantry:1/bucket/{child.uuid}/other/d"}]},
    )
    for kind in ("database", "role", "key"):
        seen = getattr(drivers, kind).observe(getattr(names, kind))
        assert (seen.mark, seen.digest) == (child.mark, "incomplete")
        getattr(drivers, kind).delete(getattr(names, kind), child.mark) if kind == "key" else None
    assert drivers.bucket.observe(names.bucket).mark is None


def test_who_was_shut_out_by_hand_is_let_go_of_like_any_other(
    drivers: Drivers, parents: LabParents, admin: psycopg.Connection
):
    child = drivers.make(Child())
    admin.execute(sql.SQL("ALTER ROLE {} NOLOGIN").format(sql.Identifier(child.names.role)))
    parents.objects.iam.delete_access_key(UserName=child.names.key, AccessKeyId=child.pair.access_key)
    for kind in ("key", "bucket", "role", "database"):
        driver, name = getattr(drivers, kind), getattr(child.names, kind)
        assert driver.observe(name).mark == child.mark
        driver.delete(name, child.mark)
        assert driver.observe(name) == Absent()


def test_a_user_that_somebody_made_between_our_claim_and_our_user(drivers: Drivers, parents: LabParents):
    child = drivers.make(Child(), "bucket")
    store, names = parents.objects, child.names
    content = {"label": _label(child, "key"), "access_key": child.pair.access_key}
    store.s3.put_object(
        Bucket=claims.BUCKET, Key=f"{names.key}@{names.bucket}", Body=json.dumps(content).encode(), IfNoneMatch="*"
    )
    assert drivers.key.observe(names.key).mark == child.mark
    store.iam.create_user(UserName=names.key)
    assert drivers.key.observe(names.key).mark == child.mark
    store.iam.create_access_key(UserName=names.key)
    _is_left_alone(drivers, "key", child)
    drivers.make(Child(tier=child), "key")
    assert names.key not in store.s3.get_bucket_policy(Bucket=names.bucket)["Policy"]
    _is_left_alone(drivers, "key", child)


@pytest.mark.parametrize("call", ["CreateUser", "PutBucketPolicy"])
def test_a_creation_that_was_buried_on_its_way_is_found_by_its_mark(drivers: Drivers, parents: LabParents, call: str):
    tier = drivers.make(Child(Owner.TIER), "bucket", "key")
    member, store = Child(tier=tier), parents.objects
    stale = ObjectStore(store.endpoint, store.admin)

    def bury(**_: object) -> None:
        drivers.key.delete(member.names.key, member.mark)
        assert drivers.key.observe(member.names.key) == Absent()

    client = stale.iam if call == "CreateUser" else stale.s3
    client.meta.events.register_first(f"before-call.*.{call}", bury)
    with pytest.raises(DispatchLost):
        ObjectKeys(stale).create(member.request("key"))
    seen = drivers.key.observe(member.names.key)
    if call == "CreateUser":
        assert (seen.mark, seen.digest) == (member.mark, "incomplete")
        assert Owned(member.names.key, member.mark) in drivers.key.list_owned()
        drivers.key.delete(member.names.key, member.mark)
    assert drivers.key.observe(member.names.key) == Absent()
    assert member.names.key not in store.s3.get_bucket_policy(Bucket=tier.names.bucket)["Policy"]


def test_one_claim_at_a_time(parents: LabParents):
    child = Child()

    def claim(number: int) -> bool:
        label = Label("bucket", Mark(child.uuid, f"intent-{number}"), DIGEST)
        try:
            claims.Claims(parents.objects).make(child.names.bucket, claims.Claim(label))
        except ProviderTrouble:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(claim, range(8))) == 1


def test_without_a_place_for_claims_nothing_is_known(parents: LabParents, drivers: Drivers):
    child = drivers.make(Child(), "bucket", "key")

    def lead(params: dict[str, Any], **_: object) -> None:
        params["url_path"] = params["url_path"].replace(claims.BUCKET, "nowhere")
        params["url"] = params["url"].replace(claims.BUCKET, "nowhere")

    lost = ObjectStore(parents.objects.endpoint, parents.objects.admin)
    lost.s3.meta.events.register("before-call.s3", lead)
    for driver, name in ((Buckets(lost), child.names.bucket), (ObjectKeys(lost), child.names.key)):
        assert driver.observe(name) == Unknown("claimsMissing")
        with pytest.raises(UnknownState):
            driver.list_owned()


def test_a_bucket_with_a_policy_of_somebody_gets_no_key_and_keeps_it(drivers: Drivers, parents: LabParents):
    child = drivers.make(Child(), "bucket")
    names, s3 = child.names, parents.objects.s3
    policy = json.loads(policy_text(names.bucket, (names.key,)))
    policy["Statement"][0]["Action"] = ["s3:*"]
    s3.put_bucket_policy(Bucket=names.bucket, Policy=json.dumps(policy))
    before = s3.get_bucket_policy(Bucket=names.bucket)["Policy"]
    with pytest.raises(DriverRefused, match="foreignResource"):
        drivers.key.create(child.request("key"))
    assert drivers.key.observe(names.key) == Absent()
    assert s3.get_bucket_policy(Bucket=names.bucket)["Policy"] == before


def test_a_key_is_not_whole_while_a_stranger_opens_its_bucket_too(drivers: Drivers, parents: LabParents):
    child = drivers.make(Child(), "bucket", "key")
    stranger, s3 = Child(), parents.objects.s3
    both = tuple(sorted((child.names.key, stranger.names.key)))
    s3.put_bucket_policy(Bucket=child.names.bucket, Policy=policy_text(child.names.bucket, both))
    seen = drivers.key.observe(child.names.key)
    assert (seen.mark, seen.digest) == (child.mark, "incomplete")
    drivers.key.create(child.request("key"))
    assert drivers.key.observe(child.names.key).digest == DIGEST


def _label(child: Child, kind: str) -> str:
    return Label(kind, child.mark, DIGEST).text()
