"""Where copies are: one bucket of the engine's own, which no environment's key opens.

A copy is what lies below ``UUID/ID/``: the dump, the bucket's objects by number, and last of all the manifest, which
says what each of them is. They have numbers, because a key of the store's full length has no room for a prefix, and
because two keys may be apart in one bucket alone, such as ``a`` beside ``a/b``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from engine.environments.copies import manifest, streams
from engine.environments.copies.manifest import Copy
from engine.environments.drivers.objects_store import (
    LABEL_TAG,
    Missing,
    ObjectStore,
    bucket_tags,
    have_own_bucket,
    part,
)
from engine.environments.drivers.trouble import ProviderTrouble, Trouble
from engine.environments.words import Refusal
from engine.errors import EnvironmentRefused, UnknownState

BUCKET = "tenantry-copies"
LABEL = "tenantry:1/copies"
MANIFEST = "manifest.json"
DUMP = "database.dump"


@dataclass(frozen=True)
class Place:
    """The copies in one object store.

    Every method raises :class:`UnknownState` where the store does not answer, and :class:`EnvironmentRefused` with
    ``foreignResource`` for a bucket of that name which is not the engine's.
    """

    store: ObjectStore

    def ensure(self) -> None:
        """Have the bucket."""
        with answering(BUCKET):
            if not have_own_bucket(self.store, BUCKET, LABEL):
                raise _foreign()

    def uuids(self) -> tuple[str, ...]:
        """Of whom there are copies, or parts of some."""
        return self._below("")

    def found(self, uuid: str) -> Mapping[str, bool]:
        """The id of everything below the prefix of `uuid`, and whether it has a manifest."""
        ids = self._below(f"{uuid}/")
        with answering(f"copies of {uuid}"):
            return {copy_id: self._has_manifest(uuid, copy_id) for copy_id in ids}

    def copies(self, uuid: str) -> tuple[Copy, ...]:
        """The copies of `uuid`, the oldest first; what has no whole manifest is none."""
        read = (self.copy(uuid, copy_id) for copy_id in self._below(f"{uuid}/"))
        return tuple(copy for copy in read if copy is not None)

    def copy(self, uuid: str, copy_id: str) -> Copy | None:
        """One copy; None where there is none."""
        with answering(f"copy {uuid}/{copy_id}"):
            if not self._exists():
                return None
            try:
                content = b"".join(streams.read(self.store, BUCKET, key(uuid, copy_id, MANIFEST)).chunks)
                found = manifest.read(content)
            except (Missing, ValueError):
                return None
            return found if (found.uuid, found.id) == (uuid, copy_id) else None

    def remove(self, uuid: str, copy_id: str | None = None) -> None:
        """Remove one copy of `uuid`, or all that is below its prefix; returns only once nothing is there any more."""
        prefix = f"{uuid}/" if copy_id is None else f"{uuid}/{copy_id}/"
        with answering(f"copies of {uuid}"):
            if not self._exists():
                return
            if copy_id is not None:
                # First what makes a copy of it: half a copy must not look like one.
                self.store.call(self.store.s3.delete_object, Bucket=BUCKET, Key=key(uuid, copy_id, MANIFEST))
            self._abort_uploads(prefix)
            while keys := self._keys(prefix, 1000):
                order = {"Objects": [{"Key": name} for name in keys], "Quiet": True}
                if self.store.call(self.store.s3.delete_objects, Bucket=BUCKET, Delete=order).get("Errors"):
                    raise ProviderTrouble(Trouble.NOT_EMPTY)

    def _below(self, prefix: str) -> tuple[str, ...]:
        with answering(f"copies {prefix}"):
            if not self._exists():
                return ()
            # The store goes on to list a folder for a while after the last object in it is gone.
            return tuple(
                sorted(name.removeprefix(prefix)[:-1] for name in self._folders(prefix) if self._keys(name, 1))
            )

    def _folders(self, prefix: str) -> Iterator[str]:
        more: dict[str, str] = {}
        about = {"Bucket": BUCKET, "Prefix": prefix, "Delimiter": "/"}
        while True:
            answer = self.store.call(self.store.s3.list_objects_v2, **about, **more)
            part(answer, "Name", str)
            yield from (str(item["Prefix"]) for item in answer.get("CommonPrefixes", []))
            if not answer.get("IsTruncated"):
                return
            more = {"ContinuationToken": str(part(answer, "NextContinuationToken", str))}

    def _has_manifest(self, uuid: str, copy_id: str) -> bool:
        wanted = key(uuid, copy_id, MANIFEST)
        return self._keys(wanted, 1) == [wanted]

    def _keys(self, prefix: str, most: int) -> list[str]:
        answer = self.store.call(self.store.s3.list_objects_v2, Bucket=BUCKET, Prefix=prefix, MaxKeys=most)
        # Without a name the answer is not one about a bucket, and no contents would mean nothing.
        part(answer, "Name", str)
        return [str(item["Key"]) for item in answer.get("Contents", [])]

    def _abort_uploads(self, prefix: str) -> None:
        while uploads := self._uploads(prefix):
            for upload in uploads:
                values = {"Key": upload["Key"], "UploadId": upload["UploadId"]}
                self.store.call(self.store.s3.abort_multipart_upload, Bucket=BUCKET, **values)

    def _uploads(self, prefix: str) -> list[Any]:
        answer = self.store.call(self.store.s3.list_multipart_uploads, Bucket=BUCKET, Prefix=prefix)
        part(answer, "Bucket", str)
        return list(answer.get("Uploads", []))

    def _exists(self) -> bool:
        tags = bucket_tags(self.store, BUCKET)
        if tags is not None and tags.values and tags.values.get(LABEL_TAG) != LABEL:
            raise _foreign()
        return tags is not None


def key(uuid: str, copy_id: str, name: str) -> str:
    """Where `name` of a copy is in the bucket."""
    return f"{uuid}/{copy_id}/{name}"


def object_name(number: int) -> str:
    """What the object that is `number` in its manifest, counted from 0, is called in a copy."""
    return f"objects/{number:08d}"


@contextmanager
def answering(where: str) -> Iterator[None]:
    """Turn a provider's trouble into :class:`UnknownState`: the same may be asked again."""
    try:
        yield
    except ProviderTrouble as trouble:
        raise UnknownState(
            f"{Refusal.OBSERVATION_UNKNOWN}: {trouble.word}",
            where=where,
            hint="give the same command again when the provider answers",
        ) from None


def _foreign() -> EnvironmentRefused:
    return EnvironmentRefused(
        Refusal.FOREIGN_RESOURCE,
        f"bucket {BUCKET} is there and does not carry our mark",
        where="parent objects",
        hint="whoever made it has to say what it is; no copy is made or removed meanwhile",
    )
