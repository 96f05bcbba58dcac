"""Objects as streams: written in parts, so that memory is bounded, and compared with what the store says it holds."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from engine.environments.drivers.objects_store import ObjectStore, Taken, part, troubles
from engine.environments.drivers.trouble import ProviderTrouble, Trouble

PART_BYTES = 8 * 1024 * 1024
CHUNK_BYTES = 256 * 1024

OWN_HEADERS = ("ContentType", "ContentEncoding", "ContentDisposition", "ContentLanguage", "CacheControl")
"""What S3 keeps of an object beside its content and the metadata of whoever wrote it."""


@dataclass
class Tally:
    """How much of a stream went by, and its digest."""

    size: int = 0
    _hash: Any = field(default_factory=hashlib.sha256)

    @property
    def sha256(self) -> str:
        return str(self._hash.hexdigest())

    def of(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Pass `chunks` on, counting them."""
        for chunk in chunks:
            self.size += len(chunk)
            self._hash.update(chunk)
            yield chunk


@dataclass(frozen=True)
class Stored:
    """An object that is being read."""

    headers: Mapping[str, str]
    metadata: Mapping[str, str]
    chunks: Iterator[bytes]


class Mismatch(Exception):
    """A stream is not what it should be; its last part was not passed on."""


def verified(chunks: Iterable[bytes], size: int, sha256: str) -> Iterator[bytes]:
    """Pass `chunks` on, the last of them only if all together are what they should be; raises :class:`Mismatch`."""
    tally, held = Tally(), b""
    for chunk in tally.of(chunks):
        if held:
            yield held
        held = chunk
    if (tally.size, tally.sha256) != (size, sha256):
        raise Mismatch
    if held:
        yield held


def read(store: ObjectStore, bucket: str, key: str) -> Stored:
    """Begin to read an object; this and its chunks raise `ProviderTrouble`, `Missing` if there is none."""
    answer = store.call(store.s3.get_object, Bucket=bucket, Key=key)
    return Stored(
        {name: str(answer[name]) for name in OWN_HEADERS if answer.get(name)},
        {str(name): str(value) for name, value in part(answer, "Metadata", dict).items()},
        _chunks(answer["Body"]),
    )


def keys(store: ObjectStore, bucket: str, prefix: str = "") -> Iterator[str]:
    """Every key below `prefix`; raises `ProviderTrouble`."""
    more: dict[str, str] = {}
    while True:
        answer = store.call(store.s3.list_objects_v2, Bucket=bucket, Prefix=prefix, MaxKeys=1000, **more)
        part(answer, "Name", str)
        yield from (str(item["Key"]) for item in answer.get("Contents", []))
        if not answer.get("IsTruncated"):
            return
        more = {"ContinuationToken": str(part(answer, "NextContinuationToken", str))}


def put(
    store: ObjectStore,
    bucket: str,
    key: str,
    chunks: Iterable[bytes],
    headers: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    *,
    confirm: Callable[[], None] | None = None,
) -> Tally:
    """Write an object and have the store confirm its size and digest; what went into it.

    If `chunks` raises, nothing is there under that key that was not there before. With `confirm` the object must be
    new, or there with the same content, else `Taken` is raised; it is called right before the object comes to be, and
    raises where that must not be. Raises `ProviderTrouble`.
    """
    tally = Tally()
    parts = _parts(tally.of(chunks))
    first, second = next(parts, b""), next(parts, None)
    about = {"Bucket": bucket, "Key": key}
    described = {**about, **(headers or {}), "Metadata": dict(metadata or {})}
    finish = _Finish(store, confirm)
    if second is None:
        finish(store.s3.put_object, **described, Body=first, ContentMD5=_base64(first))
        tag = hashlib.md5(first, usedforsecurity=False).hexdigest()
    else:
        tag = _put_parts(store, about, described, (first, second), parts, finish)
    held = store.call(store.s3.head_object, **about)
    if (held.get("ContentLength"), str(held.get("ETag")).strip('"')) != (tally.size, tag):
        raise Taken if finish.taken else ProviderTrouble(Trouble.UNEXPECTED)
    return tally


@dataclass
class _Finish:
    """The call that makes an object out of what was sent; `taken` says that there was one already."""

    store: ObjectStore
    confirm: Callable[[], None] | None
    taken: bool = False

    def __call__(self, function: Callable[..., Any], **arguments: Any) -> None:
        if self.confirm is None:
            self.store.call(function, **arguments)
            return
        self.confirm()
        try:
            self.store.call(function, **arguments, IfNoneMatch="*")
        except Taken:
            self.taken = True


def _put_parts(
    store: ObjectStore,
    about: Mapping[str, str],
    described: Mapping[str, Any],
    begun: Iterable[bytes],
    rest: Iterator[bytes],
    finish: _Finish,
) -> str:
    """Write an object that takes several parts, of which `finish` makes one; the tag that the store must give it."""
    upload = {**about, "UploadId": part(store.call(store.s3.create_multipart_upload, **described), "UploadId", str)}
    sent: list[dict[str, Any]] = []
    digests, is_made = b"", False

    def send(content: bytes) -> None:
        nonlocal digests
        number = len(sent) + 1
        values = {**upload, "PartNumber": number, "Body": content, "ContentMD5": _base64(content)}
        sent.append({"PartNumber": number, "ETag": part(store.call(store.s3.upload_part, **values), "ETag", str)})
        digests += hashlib.md5(content, usedforsecurity=False).digest()

    try:
        for content in begun:
            send(content)
        for content in rest:
            send(content)
        finish(store.s3.complete_multipart_upload, **upload, MultipartUpload={"Parts": sent})
        is_made = not finish.taken
    finally:
        if not is_made:
            # What stays of it all the same is no object, and goes with the prefix.
            with suppress(ProviderTrouble):
                store.call(store.s3.abort_multipart_upload, **upload)
    return f"{hashlib.md5(digests, usedforsecurity=False).hexdigest()}-{len(sent)}"


def _chunks(body: Any) -> Iterator[bytes]:
    with troubles():
        yield from body.iter_chunks(CHUNK_BYTES)


def _parts(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """`chunks` in pieces of one part's size, of which only the last is smaller."""
    gathered = bytearray()
    for chunk in chunks:
        gathered += chunk
        while len(gathered) >= PART_BYTES:
            yield bytes(gathered[:PART_BYTES])
            del gathered[:PART_BYTES]
    if gathered:
        yield bytes(gathered)


def _base64(content: bytes) -> str:
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()
