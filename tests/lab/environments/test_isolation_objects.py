"""Every key against everything that is not its own."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from botocore.exceptions import ClientError

from engine.environments.copies import place
from engine.environments.drivers import claims
from engine.environments.drivers.base import KeyPair
from engine.environments.drivers.object_keys import policy_text
from engine.environments.drivers.objects_store import client
from engine.environments.names import Owner
from engine.environments.parents import LabParents
from tests.lab.environments.conftest import DIGEST, Child, Drivers, Site


def test_each_key_opens_its_own_bucket_and_no_other(parents: LabParents, site: Site):
    for child in site.everybody:
        parents.objects.s3.put_object(Bucket=child.storage.bucket, Key="seed", Body=b"kept")
    place.Place(parents.objects).ensure()
    for engines in (claims.BUCKET, place.BUCKET):
        parents.objects.s3.put_object(Bucket=engines, Key="seed", Body=b"kept")
    for child in site.everybody:
        s3 = client(parents.objects.endpoint, "s3", child.pair)
        own = child.storage.bucket
        s3.put_object(Bucket=own, Key="own", Body=b"mine")
        assert s3.get_object(Bucket=own, Key="own")["Body"].read() == b"mine"
        assert {item["Key"] for item in s3.list_objects_v2(Bucket=own)["Contents"]} >= {"own", "seed"}
        listed = {bucket["Name"] for bucket in s3.list_buckets()["Buckets"]}
        assert listed <= {own}
        for other in {each.storage.bucket for each in site.everybody} - {own}:
            _refused(s3, other, own)
        for engines in (claims.BUCKET, place.BUCKET):
            _refused(s3, engines, own)
        for call, arguments in _of_bucket(own).items():
            _denied(s3, call, arguments)
        assert parents.objects.s3.get_object(Bucket=own, Key="seed")["Body"].read() == b"kept"


def test_members_of_one_tier_share_their_objects(parents: LabParents, site: Site):
    first, second, other = (client(parents.objects.endpoint, "s3", member.pair) for member in site.members)
    bucket = site.tiers[0].names.bucket
    first.put_object(Bucket=bucket, Key="of the first", Body=b"shared")
    assert second.get_object(Bucket=bucket, Key="of the first")["Body"].read() == b"shared"
    second.put_object(Bucket=bucket, Key="of the first", Body=b"changed")
    assert first.get_object(Bucket=bucket, Key="of the first")["Body"].read() == b"changed"
    _denied(other, "get_object", {"Bucket": bucket, "Key": "of the first"})


def test_members_that_are_let_in_and_put_out_at_the_same_time(parents: LabParents):
    drivers = Drivers.over(parents.postgres, parents.objects)
    tier = drivers.make(Child(Owner.TIER), "bucket", "key")
    leaving, coming = ([Child(tier=tier) for _ in range(4)] for _ in range(2))
    for member in leaving:
        drivers.make(member, "key")
    jobs: list[Callable[[], object]] = [partial(drivers.make, member, "key") for member in coming]
    jobs += [partial(drivers.key.delete, member.names.key, member.mark) for member in leaving]
    with ThreadPoolExecutor(len(jobs)) as pool:
        for job in [pool.submit(job) for job in jobs]:
            job.result()
    for member in (tier, *coming):
        seen = drivers.key.observe(member.names.key)
        assert (seen.mark, seen.digest) == (member.mark, DIGEST)
        client(parents.objects.endpoint, "s3", member.pair).list_objects_v2(Bucket=tier.names.bucket)
    policy = parents.objects.s3.get_bucket_policy(Bucket=tier.names.bucket)["Policy"]
    assert [member.names.key for member in leaving if member.names.key in policy] == []
    for member in (*coming, tier):
        drivers.key.delete(member.names.key, member.mark)
    with pytest.raises(ClientError, match="NoSuchBucketPolicy"):
        parents.objects.s3.get_bucket_policy(Bucket=tier.names.bucket)


def test_a_policy_that_lost_a_member_is_put_right_by_whoever_comes_next(parents: LabParents):
    drivers = Drivers.over(parents.postgres, parents.objects)
    tier = drivers.make(Child(Owner.TIER), "bucket", "key")
    member = drivers.make(Child(tier=tier), "key")
    parents.objects.s3.put_bucket_policy(
        Bucket=tier.names.bucket, Policy=policy_text(tier.names.bucket, (tier.names.key,))
    )
    assert drivers.key.observe(member.names.key).digest == "incomplete"
    assert drivers.key.observe(tier.names.key).digest == DIGEST
    drivers.make(Child(tier=tier), "key")
    assert drivers.key.observe(member.names.key).digest == DIGEST


def test_nobody_opens_a_bucket_without_its_key(parents: LabParents, site: Site):
    for child in site.everybody:
        bucket, other = child.storage.bucket, next(each for each in site.everybody if each.storage != child.storage)
        parents.objects.s3.put_object(Bucket=bucket, Key="seed", Body=b"kept")
        swapped = KeyPair(child.pair.access_key, other.pair.secret_key)
        _denied(client(parents.objects.endpoint, "s3", swapped), "get_object", {"Bucket": bucket, "Key": "seed"})
        signed = client(parents.objects.endpoint, "s3", other.pair).generate_presigned_url(
            "get_object", Params={"Bucket": bucket, "Key": "seed"}
        )
        for url in (signed, f"{parents.objects.endpoint}/{bucket}/seed", f"{parents.objects.endpoint}/{bucket}"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(url)
            assert refused.value.code == 403
        request = urllib.request.Request(f"{parents.objects.endpoint}/{bucket}/stolen", data=b"x", method="PUT")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 403


def test_no_key_administers(parents: LabParents, site: Site):
    document = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
    for child in site.everybody:
        iam = client(parents.objects.endpoint, "iam", child.pair)
        other = next(each for each in site.everybody if each != child)
        calls: dict[str, dict[str, Any]] = {
            "create_user": {"UserName": "stolen"},
            "list_users": {},
            "list_policies": {},
            "create_policy": {"PolicyName": "stolen", "PolicyDocument": document},
            "put_user_policy": {"UserName": child.names.key, "PolicyName": "s", "PolicyDocument": document},
            "attach_user_policy": {"UserName": child.names.key, "PolicyArn": "arn:aws:iam:::policy/wide"},
            "tag_user": {"UserName": child.names.key, "Tags": [{"Key": "tenantry", "Value": "x"}]},
            "create_access_key": {"UserName": other.names.key},
            "delete_access_key": {"UserName": other.names.key, "AccessKeyId": other.pair.access_key},
            "delete_user": {"UserName": other.names.key},
        }
        for call, arguments in calls.items():
            _denied(iam, call, arguments)


def test_a_key_that_a_key_made_for_itself_ends_with_it_and_is_seen(parents: LabParents):
    drivers = Drivers.over(parents.postgres, parents.objects)
    child = drivers.make(Child(), "bucket", "key")
    iam = client(parents.objects.endpoint, "iam", child.pair)
    made = iam.create_access_key(UserName=child.names.key)["AccessKey"]
    assert drivers.key.observe(child.names.key).digest == "incomplete"
    drivers.key.delete(child.names.key, child.mark)
    with pytest.raises(ClientError):
        client(
            parents.objects.endpoint, "s3", type(child.pair)(made["AccessKeyId"], made["SecretAccessKey"].encode())
        ).list_objects_v2(Bucket=child.names.bucket)


def _refused(s3: Any, other: str, own: str) -> None:
    calls: dict[str, dict[str, Any]] = {
        "head_bucket": {},
        "list_objects_v2": {},
        "list_multipart_uploads": {},
        "get_object": {"Key": "seed"},
        "head_object": {"Key": "seed"},
        "put_object": {"Key": "stolen", "Body": b""},
        "delete_object": {"Key": "seed"},
        "create_multipart_upload": {"Key": "stolen"},
        "list_object_versions": {},
        "get_bucket_acl": {},
        "get_bucket_policy": {},
        "get_object_tagging": {"Key": "seed"},
        "put_object_tagging": {"Key": "seed", "Tagging": {"TagSet": []}},
        "delete_object_tagging": {"Key": "seed"},
        "get_object_acl": {"Key": "seed"},
        "put_object_acl": {"Key": "seed", "ACL": "public-read"},
    }
    for call, arguments in (calls | _of_bucket(other)).items():
        _denied(s3, call, {"Bucket": other} | arguments)
    _denied(s3, "copy_object", {"Bucket": own, "Key": "stolen", "CopySource": f"{other}/seed"})
    _denied(s3, "copy_object", {"Bucket": own, "Key": "stolen", "CopySource": f"{own}/../{other}/seed"}, (400, 403))
    upload = s3.create_multipart_upload(Bucket=own, Key="stolen")["UploadId"]
    part = {"Bucket": own, "Key": "stolen", "UploadId": upload, "PartNumber": 1}
    _denied(s3, "upload_part_copy", {**part, "CopySource": f"{other}/seed"})
    s3.abort_multipart_upload(Bucket=own, Key="stolen", UploadId=upload)
    gone = s3.delete_objects(Bucket=other, Delete={"Objects": [{"Key": "seed"}]})
    assert gone.get("Deleted", []) == []
    for key in ("../" + other + "/stolen", "..%2f" + other + "/stolen"):
        try:
            s3.put_object(Bucket=own, Key=key, Body=b"")
        except ClientError:
            continue


def _of_bucket(bucket: str) -> dict[str, dict[str, Any]]:
    return {
        "delete_bucket": {"Bucket": bucket},
        "put_bucket_tagging": {"Bucket": bucket, "Tagging": {"TagSet": [{"Key": "tenantry", "Value": "stolen"}]}},
        "delete_bucket_tagging": {"Bucket": bucket},
        "put_bucket_acl": {"Bucket": bucket, "ACL": "public-read"},
        "get_bucket_policy": {"Bucket": bucket},
        "put_bucket_policy": {"Bucket": bucket, "Policy": policy_text(bucket, ("ns-e-stolen",))},
        "delete_bucket_policy": {"Bucket": bucket},
        "put_object_acl": {"Bucket": bucket, "Key": "seed", "ACL": "public-read"},
        "put_bucket_versioning": {"Bucket": bucket, "VersioningConfiguration": {"Status": "Enabled"}},
        "get_bucket_tagging": {"Bucket": bucket},
    }


def _denied(service: Any, call: str, arguments: dict[str, Any], statuses: tuple[int, ...] = (403,)) -> None:
    with pytest.raises(ClientError) as refused:
        getattr(service, call)(**arguments)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] in statuses, call
