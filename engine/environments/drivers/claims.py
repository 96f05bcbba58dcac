"""What says whose a bucket or a key is before it is there: a small object each, in a bucket of the engine's own.

Neither a bucket nor a user can be made with a mark on it. An object is made with its content in one call, which the
store refuses if there is one already. So the claim is the first thing that is made and the last that is removed, and
whatever a crash leaves between has a mark.

Policies of the store would be as good but for their number: SeaweedFS 4.48 reads all of them again for each of its
users whenever one of the users gets or loses a key.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from engine.environments.drivers.objects_store import Missing, ObjectStore, have_own_bucket, part, troubles
from engine.environments.drivers.trouble import ProviderTrouble, Trouble
from engine.environments.observation import Label, read_label

BUCKET = "tenantry-claims"
BUCKET_LABEL = "tenantry:1/claims"

_PROBE = "probe"

_FOR = "@"
"""Between the name of a key and that of the bucket it is for, so that a listing says who opens a bucket."""


@dataclass(frozen=True)
class Claim:
    """Whose a name is; `label` is None where nobody can tell. One on a key says its bucket and its access key too."""

    label: Label | None
    bucket: str = ""
    access_key: str = ""


@dataclass(frozen=True)
class Claims:
    """The claims in one object store. Every method raises `ProviderTrouble`."""

    store: ObjectStore

    def ensure(self) -> bool:
        """Have their bucket, and see that objects come out of it and go into it; False if it is somebody else's.

        A store that was just started lists what it cannot read yet.
        """
        if not have_own_bucket(self.store, BUCKET, BUCKET_LABEL):
            return False
        for key in self._keys("")[:1]:
            self._content(key)
        self.store.call(self.store.s3.put_object, Bucket=BUCKET, Key=_PROBE, Body=b"probe")
        self._content(_PROBE)
        self.store.call(self.store.s3.delete_object, Bucket=BUCKET, Key=_PROBE)
        return True

    def find(self, name: str) -> Claim | None:
        """The claim on `name`; no name that is derived from a uuid begins with another."""
        found = self._keys(name)
        if len(found) > 1:
            return Claim(None)
        content = self._content(found[0]) if found else None
        return None if content is None else _read(found[0], content)

    def make(self, name: str, claim: Claim) -> None:
        """Claim `name`; refused by the store where it is claimed already."""
        assert claim.label is not None, "a claim is somebody's"
        content = {"label": claim.label.text(), "access_key": claim.access_key}
        self.store.call(
            self.store.s3.put_object,
            Bucket=BUCKET,
            Key=_key(name, claim.bucket),
            Body=json.dumps(content).encode(),
            IfNoneMatch="*",
        )

    def remove(self, name: str, claim: Claim) -> None:
        """Give `name` up."""
        self.store.call(self.store.s3.delete_object, Bucket=BUCKET, Key=_key(name, claim.bucket))

    def names(self) -> tuple[str, ...]:
        """Every name that is claimed."""
        return tuple(sorted({key.partition(_FOR)[0] for key in self._keys("")}))

    def on(self, bucket: str) -> tuple[str, ...]:
        """The names of the keys that are claimed for `bucket`."""
        parts = (key.partition(_FOR) for key in self._keys(""))
        return tuple(sorted(name for name, _, target in parts if target == bucket))

    def _content(self, key: str) -> bytes | None:
        try:
            with troubles():
                content: bytes = self.store.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
                return content
        except Missing as missing:
            if missing.code == "NoSuchKey":
                return None
            raise ProviderTrouble(Trouble.CLAIMS_MISSING) from None

    def _keys(self, prefix: str) -> list[str]:
        keys: list[str] = []
        more: dict[str, str] = {}
        while True:
            try:
                answer = self.store.call(self.store.s3.list_objects_v2, Bucket=BUCKET, Prefix=prefix, **more)
            except Missing:
                raise ProviderTrouble(Trouble.CLAIMS_MISSING) from None
            if part(answer, "Name", str) != BUCKET:
                raise ProviderTrouble(Trouble.UNREADABLE)
            keys += [str(item["Key"]) for item in answer.get("Contents", [])]
            if not answer.get("IsTruncated"):
                return keys
            more = {"ContinuationToken": str(part(answer, "NextContinuationToken", str))}


def _key(name: str, bucket: str) -> str:
    return f"{name}{_FOR}{bucket}" if bucket else name


def _read(key: str, content: bytes) -> Claim:
    """The claim in an object; what is not of its form may be half an answer, and says nothing."""
    try:
        document = json.loads(content)
        label, access_key = document["label"], document["access_key"]
    except (ValueError, KeyError, TypeError):
        raise ProviderTrouble(Trouble.UNREADABLE) from None
    return Claim(read_label(str(label)), key.partition(_FOR)[2], str(access_key))
