"""Calls to the object store that all environments share, over S3 and IAM, each sent once and bounded in time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore import exceptions
from botocore.config import Config
from botocore.parsers import ResponseParserError

from engine.environments.drivers.base import KeyPair
from engine.environments.drivers.trouble import ProviderTrouble, Trouble, of_status
from engine.environments.observation import Label, read_label

REGION = "us-east-1"

_SAID_NO = (400, 404, 405, 409, 412)
"""Statuses with which the store itself says that it did not do what it was asked."""


class Missing(ProviderTrouble):
    """The store said, in its own words, that what was asked about does not exist."""

    def __init__(self, code: str) -> None:
        super().__init__(Trouble.UNEXPECTED, definite=True)
        self.code = code


class Taken(ProviderTrouble):
    """The store said that there is something already where only something new was to be written."""

    def __init__(self) -> None:
        super().__init__(Trouble.UNEXPECTED, definite=True)


MISSING_CODES = ("NoSuchBucket", "NoSuchBucketPolicy", "NoSuchEntity", "NoSuchKey", "NoSuchTagSet")


def _session() -> boto3.session.Session:
    own = botocore.session.Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
        }
    )
    return boto3.session.Session(botocore_session=own)


@dataclass(frozen=True)
class ObjectStore:
    """Where the shared object store is, and the administrator that makes buckets and users there."""

    endpoint: str
    admin: KeyPair
    connect_seconds: float = 5
    answer_seconds: float = 30
    session: boto3.session.Session = field(default_factory=_session, repr=False, compare=False)
    """What it reads about each service takes longer than most calls, so it is read once."""
    policies: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """Held while the policy of a bucket is made to follow the claims, against other jobs of this process."""

    @property
    def port(self) -> int:
        """The port of its endpoint."""
        found = urlsplit(self.endpoint).port
        assert found is not None
        return found

    @cached_property
    def s3(self) -> Any:
        return self.client("s3")

    @cached_property
    def iam(self) -> Any:
        return self.client("iam")

    def client(self, service: str) -> Any:
        """A new client of the administrator's, for handlers of its own."""
        return client(self.endpoint, service, self.admin, self.connect_seconds, self.answer_seconds, self.session)

    def call(self, function: Callable[..., Any], **arguments: Any) -> Mapping[str, Any]:
        """The answer of one call; raises `Missing` or another `ProviderTrouble`."""
        with troubles():
            return dict(function(**arguments))


def client(
    endpoint: str,
    service: str,
    key: KeyPair,
    connect_seconds: float = 5,
    answer_seconds: float = 30,
    session: boto3.session.Session | None = None,
) -> Any:
    """A client that uses `key` and nothing of this account's own configuration, and sends every request once."""
    config = Config(
        connect_timeout=connect_seconds,
        read_timeout=answer_seconds,
        retries={"total_max_attempts": 1},
        proxies={},
        s3={"addressing_style": "path"},
    )
    return (session or _session()).client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key.access_key,
        aws_secret_access_key=key.secret_key.decode(),
        config=config,
    )


@contextmanager
def troubles() -> Iterator[None]:
    """Turn what the client library raises into `ProviderTrouble`."""
    try:
        yield
    except exceptions.ClientError as error:
        raise _answered(error) from None
    except (exceptions.ConnectTimeoutError, exceptions.ReadTimeoutError):
        raise ProviderTrouble(Trouble.TIMED_OUT) from None
    except exceptions.EndpointConnectionError:
        raise ProviderTrouble(Trouble.UNREACHABLE) from None
    except exceptions.HTTPClientError:
        raise ProviderTrouble(Trouble.CONNECTION_LOST) from None
    except (ResponseParserError, exceptions.BotoCoreError, ValueError, KeyError, TypeError):
        raise ProviderTrouble(Trouble.UNREADABLE) from None


def _answered(error: exceptions.ClientError) -> ProviderTrouble:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    code = str(error.response.get("Error", {}).get("Code", ""))
    # A bare 404 may be anybody's, a proxy's for one: only the store's own code says that a thing does not exist.
    if status == 404 and code in MISSING_CODES:
        return Missing(code)
    if status == 412 and code == "PreconditionFailed":
        return Taken()
    return ProviderTrouble(of_status(status), definite=status in _SAID_NO and bool(code) and code != str(status))


def part(answer: Mapping[str, Any], name: str, kind: type) -> Any:
    """A field that the answer has to have: half an answer is none."""
    value = answer.get(name)
    if not isinstance(value, kind):
        raise ProviderTrouble(Trouble.UNREADABLE)
    return value


@dataclass(frozen=True)
class Tags:
    """Tags of a bucket, in which a label is one."""

    values: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, items: list[Any]) -> Tags:
        return cls({str(item["Key"]): str(item["Value"]) for item in items})

    @property
    def label(self) -> Label | None:
        return read_label(self.values.get(LABEL_TAG))


LABEL_TAG = "tenantry"


def bucket_tags(store: ObjectStore, name: str) -> Tags | None:
    """The tags of a bucket; None if there is no such bucket. Raises `ProviderTrouble`."""
    try:
        return Tags.of(part(store.call(store.s3.get_bucket_tagging, Bucket=name), "TagSet", list))
    except Missing as missing:
        if missing.code == "NoSuchBucket":
            return None
        if missing.code == "NoSuchTagSet":
            return Tags()
        raise


def is_empty(store: ObjectStore, name: str) -> bool:
    """Whether a bucket has no object. Raises `ProviderTrouble`."""
    answer = store.call(store.s3.list_objects_v2, Bucket=name, MaxKeys=1)
    # Without a name the answer is not one about a bucket, and no contents would mean nothing.
    part(answer, "Name", str)
    return not answer.get("Contents")


def have_own_bucket(store: ObjectStore, name: str, label: str) -> bool:
    """Have a bucket of the engine's own, which no environment's key opens; False if one of that name is not ours."""
    tags = bucket_tags(store, name)
    if tags is None:
        store.call(store.s3.create_bucket, Bucket=name)
    elif tags.values.get(LABEL_TAG) == label:
        return True
    elif tags.values or not is_empty(store, name):
        return False
    # One without a tag and with nothing in it is what a crash leaves between the two calls.
    store.call(store.s3.put_bucket_tagging, Bucket=name, Tagging={"TagSet": [{"Key": LABEL_TAG, "Value": label}]})
    return True
