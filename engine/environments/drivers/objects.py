"""Buckets of environments. A bucket and the claim on its name are one resource."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.environments.drivers.base import CreateRequest, Kind, Owned
from engine.environments.drivers.claims import Claim, Claims
from engine.environments.drivers.objects_store import (
    LABEL_TAG,
    Missing,
    ObjectStore,
    Tags,
    bucket_tags,
    is_empty,
    part,
)
from engine.environments.drivers.trouble import INCOMPLETE, Effects, ProviderTrouble, Trouble, effects_on
from engine.environments.names import Owner, names_of, uuid_of
from engine.environments.observation import Absent, Label, Mark, Observation, Present
from engine.errors import UnknownState

SETTLE_SECONDS = 5.0
_MARKERS = ("KeyMarker", "UploadIdMarker", "VersionIdMarker")


@dataclass(frozen=True)
class _Found:
    """What there is under a bucket's name; `tags` is None without a bucket."""

    tags: Tags | None
    claim: Claim | None
    empty: bool

    @property
    def claimed(self) -> Label | None:
        """Whose the claim says it is."""
        label = self.claim.label if self.claim is not None else None
        return label if label is not None and label.kind == Kind.BUCKET else None

    @property
    def label(self) -> Label | None:
        """Whose it is; a bucket that says nothing is the claim's as long as there is nothing in it."""
        if self.tags is None:
            return self.claimed
        if self.tags.values:
            own = self.tags.label if self.tags.label and self.tags.label.kind == Kind.BUCKET else None
            return own if self.claim is None or self.claimed == own else None
        return self.claimed if self.empty else None

    @property
    def present(self) -> bool:
        return self.tags is not None or self.claim is not None

    def observation(self, name: str) -> Observation:
        if not self.present:
            return Absent()
        label = self.label
        whole = self.tags is not None and label is not None and self.tags.label == self.claimed == label
        digest = label.digest if label is not None and whole else INCOMPLETE
        return Present(f"bucket:{name}", digest, label.mark if label else None)


class Buckets:
    """The kind bucket."""

    kind = Kind.BUCKET

    def __init__(
        self, store: ObjectStore, owner: Owner = Owner.ENVIRONMENT, settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        self.settle_seconds = settle_seconds
        self._store = store
        self._owner = owner

    def name(self, uuid: str) -> str:
        return names_of(uuid, self._owner).bucket

    def observe(self, name: str) -> Observation:
        try:
            return look(self._store, name).observation(name)
        except ProviderTrouble as trouble:
            return trouble.unknown

    def create(self, request: CreateRequest) -> Observation:
        label = Label(self.kind, request.mark, request.digest)
        with effects_on(self.kind, request.name) as effects:
            found = look(self._store, request.name)
            if found.present and found.label != label:
                raise effects.refuse(Trouble.FOREIGN)
            self._make(request.name, label, found, effects)
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        """Remove the bucket with all that is in it."""
        with effects_on(self.kind, name) as effects:
            found = look(self._store, name)
            if not found.present:
                return
            if found.label is None or found.label.mark != mark:
                raise effects.refuse(Trouble.FOREIGN)
            if found.tags is not None:
                # One without tags was empty: what is in it since then is not ours, and the store refuses to drop it.
                if found.tags.values:
                    effects.begin()
                    _empty(self._store, name, effects)
                effects.begin()
                _unless_missing(self._store, self._store.s3.delete_bucket, Bucket=name)
            if found.claim is not None:
                effects.begin()
                Claims(self._store).remove(name, found.claim)

    def list_owned(self) -> tuple[Owned, ...]:
        try:
            buckets = part(self._store.call(self._store.s3.list_buckets), "Buckets", list)
            names = {str(bucket["Name"]) for bucket in buckets} | set(Claims(self._store).names())
            derived = sorted(name for name in names if _is_bucket(name))
            labels = {name: look(self._store, name).label for name in derived}
        except ProviderTrouble as trouble:
            raise UnknownState(str(trouble.word), where=f"list of kind {self.kind}") from None
        return tuple(Owned(name, label.mark) for name, label in labels.items() if label is not None)

    def _make(self, name: str, label: Label, found: _Found, effects: Effects) -> None:
        store = self._store
        if found.claim is None:
            effects.begin()
            Claims(store).make(name, Claim(label))
        if found.tags is None:
            effects.begin()
            store.call(store.s3.create_bucket, Bucket=name)
        if found.tags is None or not found.tags.values:
            effects.begin()
            tag = {"Key": LABEL_TAG, "Value": label.text()}
            store.call(store.s3.put_bucket_tagging, Bucket=name, Tagging={"TagSet": [tag]})


def look(store: ObjectStore, name: str) -> _Found:
    """What there is under a bucket's name; raises `ProviderTrouble`."""
    claim = Claims(store).find(name)
    tags = bucket_tags(store, name)
    empty = tags is not None and not tags.values and claim is not None and is_empty(store, name)
    return _Found(tags, claim, empty)


def _empty(store: ObjectStore, name: str, effects: Effects) -> None:
    """Remove uploads that never ended, then all versions of all objects."""
    for upload in _pages(store, store.s3.list_multipart_uploads, name, "Uploads"):
        effects.begin()
        arguments = {"Bucket": name, "Key": upload["Key"], "UploadId": upload["UploadId"]}
        store.call(store.s3.abort_multipart_upload, **arguments)
    for listed in ("Versions", "DeleteMarkers"):
        for version in _pages(store, store.s3.list_object_versions, name, listed):
            effects.begin()
            store.call(store.s3.delete_object, Bucket=name, Key=version["Key"], VersionId=version["VersionId"])
    while contents := store.call(store.s3.list_objects_v2, Bucket=name, MaxKeys=1000).get("Contents"):
        effects.begin()
        keys = [{"Key": item["Key"]} for item in contents]
        if store.call(store.s3.delete_objects, Bucket=name, Delete={"Objects": keys, "Quiet": True}).get("Errors"):
            raise ProviderTrouble(Trouble.NOT_EMPTY)


def _pages(store: ObjectStore, function: Any, name: str, field: str) -> list[Any]:
    """All entries of a listing; the list is bounded by what one bucket holds."""
    found: list[Any] = []
    markers: dict[str, Any] = {}
    while True:
        answer = store.call(function, Bucket=name, **markers)
        found += answer.get(field, [])
        if not answer.get("IsTruncated"):
            return found
        markers = {marker: answer[f"Next{marker}"] for marker in _MARKERS if answer.get(f"Next{marker}")}


def _unless_missing(store: ObjectStore, function: Any, **arguments: Any) -> None:
    try:
        store.call(function, **arguments)
    except Missing:
        return


def _is_bucket(name: str) -> bool:
    uuid = uuid_of(name)
    return uuid is not None and any(names_of(uuid, owner).bucket == name for owner in Owner)
