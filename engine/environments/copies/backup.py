"""Making a copy: the database's snapshot first, then the bucket's objects, and last of all the manifest.

In that order, because an application writes an object and then the row that names it: every row of the snapshot has
its object in the copy, unless it was deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from engine.clock import Clock, iso, new_run_id
from engine.environments.copies import database, manifest, programs, streams
from engine.environments.copies.manifest import CopiedObject, Copy, Dump
from engine.environments.copies.place import BUCKET, DUMP, MANIFEST, Place, answering, key, object_name
from engine.environments.drivers.base import Kind
from engine.environments.drivers.objects_store import Missing
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.spec import Specification
from engine.registry.freeze import thaw


@dataclass(frozen=True)
class _Making:
    """One copy that is being made of what `spec` owns."""

    place: Place
    postgres: PostgresParent
    spec: Specification
    id: str

    def key(self, name: str) -> str:
        return key(self.spec.uuid, self.id, name)

    def dump(self) -> Dump:
        name = self.spec.name(Kind.DATABASE)
        login = programs.Login.of_administrator(self.postgres, name)
        with database.snapshot(self.postgres, name) as snapshot:
            rows = snapshot.rows()
            chunks = programs.dump(login, snapshot.id, without_schema=database.SCHEMA)
            # Once anything comes, the program has the snapshot and its locks for itself, for as long as it takes.
            first = next(chunks, b"")
        tally = streams.put(self.place.store, BUCKET, self.key(DUMP), chain((first,), chunks))
        return Dump(tally.size, tally.sha256, rows)

    def objects(self) -> Iterator[CopiedObject]:
        store, bucket, number = self.place.store, self.spec.name(Kind.BUCKET), 0
        for name in streams.keys(store, bucket):
            try:
                source = streams.read(store, bucket, name)
            except Missing:
                # Deleted since it was listed: so it is not in this bucket.
                continue
            about = (source.headers, source.metadata)
            tally = streams.put(store, BUCKET, self.key(object_name(number)), source.chunks, *about)
            yield CopiedObject(name, tally.size, tally.sha256, *about)
            number += 1


def back_up(
    place: Place, postgres: PostgresParent, spec: Specification, clock: Clock, confirm: Callable[[], None]
) -> Copy:
    """Make a copy of the database and the bucket of `spec`.

    `confirm` is called before the manifest is written and raises where the copy must not be. Raises
    :class:`CopyFailed` and :class:`UnknownState`; what there is of the copy then has no manifest.
    """
    place.ensure()
    started, making = clock.now(), _Making(place, postgres, spec, new_run_id(clock))
    with answering(f"copy {spec.uuid}/{making.id}"):
        dump = making.dump()
        objects = tuple(making.objects())
        settings: dict[str, Any] = {"digest": spec.digest, **thaw(spec.settings)}
        copy = Copy(making.id, spec.uuid, iso(started), iso(clock.now()), settings, dump, objects)
        confirm()
        streams.put(place.store, BUCKET, making.key(MANIFEST), (manifest.write(copy),))
    return copy
