"""Making a new environment's database and bucket from a copy. Nothing here changes what exists: it must be empty."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from engine.environments.copies import database, programs, streams
from engine.environments.copies.manifest import Copy
from engine.environments.copies.place import BUCKET, DUMP, Place, answering, key, object_name
from engine.environments.drivers.base import Kind
from engine.environments.drivers.objects_store import Missing, Taken
from engine.environments.drivers.postgres_parent import PostgresParent
from engine.environments.spec import Specification
from engine.environments.words import CopyFault, Refusal
from engine.errors import CopyFailed, EnvironmentRefused


@dataclass(frozen=True)
class Source:
    """The copy that a new environment is made from: `uuid` is the environment that it was made of."""

    uuid: str
    copy_id: str

    @classmethod
    def of(cls, spec: Specification) -> Source | None:
        """What `spec` says; None for an environment that begins empty."""
        wanted = spec.settings.get("binding", {}).get("restore")
        return None if wanted is None else cls(wanted["environment"], wanted["backup"])

    def __str__(self) -> str:
        return f"{self.uuid}/{self.copy_id}"

    @property
    def mark(self) -> str:
        return f"tenantry:1/restored/{self}"

    def key(self, name: str) -> str:
        return key(self.uuid, self.copy_id, name)


def require_whole(place: Place, source: Source) -> None:
    """Read the copy of `source` from end to end.

    Raises :class:`EnvironmentRefused` with ``copyUnknown`` or ``copyDamaged``, and :class:`UnknownState`.
    """
    copy = known(place, source)
    with answering(f"copy {source}"):
        try:
            for name, size, sha256 in _contents(copy):
                found = streams.read(place.store, BUCKET, source.key(name))
                for _ in streams.verified(found.chunks, size, sha256):
                    pass
        except (Missing, streams.Mismatch):
            raise EnvironmentRefused(
                Refusal.COPY_DAMAGED,
                f"{name} is not what its manifest says",
                where=f"copy {source}",
                hint="choose another copy",
            ) from None


def is_restored(postgres: PostgresParent, spec: Specification, source: Source) -> bool:
    """Whether all of `source` is in the database and the bucket of `spec`, as its database says.

    Raises :class:`UnknownState`.
    """
    with answering(f"database {spec.name(Kind.DATABASE)}"):
        return database.mark(postgres, spec.name(Kind.DATABASE)) == source.mark


def restore(
    place: Place,
    postgres: PostgresParent,
    spec: Specification,
    source: Source,
    password: bytes,
    confirm: Callable[[], None],
) -> bool:
    """Fill the empty database and bucket of `spec` from `source`; whether that was done now.

    May be called again after any end of an earlier call. `password` is that of the environment's own role: the dump
    is loaded as that role, in one transaction, so it owns all of it and nothing runs with more than its rights.
    `confirm` is called before each write and raises where `spec` is not to be filled any more.
    Raises :class:`EnvironmentRefused`, :class:`CopyFailed` and :class:`UnknownState`.
    """
    if is_restored(postgres, spec, source):
        return False
    loading = _Loading(place, postgres, spec, source, known(place, source), confirm)
    with answering(f"restore of {source}"):
        try:
            loading.database(password)
            loading.objects()
        except (Missing, streams.Mismatch):
            raise CopyFailed(CopyFault.COPY_DAMAGED, "it changed while it was read", where=f"copy {source}") from None
        loading.compare()
        # Last: from here on others may write, and nothing is loaded ever again.
        database.set_mark(postgres, spec.name(Kind.DATABASE), source.mark)
    return True


@dataclass(frozen=True)
class _Loading:
    place: Place
    postgres: PostgresParent
    spec: Specification
    source: Source
    copy: Copy
    confirm: Callable[[], None]

    def require_unfilled(self) -> None:
        """Raise :class:`EnvironmentRefused` where another job went on, so that others may use what is there by now."""
        self.confirm()
        if database.mark_in(self.postgres, self.spec.name(Kind.DATABASE)) is not None:
            raise EnvironmentRefused(Refusal.FENCED, "another job has restored it", where=self.spec.uuid)

    def database(self, password: bytes) -> None:
        """Load the dump, unless an earlier run has: its one transaction left either all of it or nothing."""
        name, role = self.spec.name(Kind.DATABASE), self.spec.name(Kind.ROLE)
        if database.holds_anything(self.postgres, name, role):
            return
        found = streams.read(self.place.store, BUCKET, self.source.key(DUMP))
        self.require_unfilled()
        login = programs.Login(self.postgres.host, self.postgres.port, name, role, password)
        programs.load(login, streams.verified(found.chunks, self.copy.dump.size, self.copy.dump.sha256))

    def objects(self) -> None:
        """Write every object that is not there; one that an earlier run wrote must be the same."""
        store, bucket = self.place.store, self.spec.name(Kind.BUCKET)
        for number, item in enumerate(self.copy.objects):
            found = streams.read(store, BUCKET, self.source.key(object_name(number)))
            chunks = streams.verified(found.chunks, item.size, item.sha256)
            about = (item.headers, item.metadata)
            try:
                streams.put(store, bucket, item.key, chunks, *about, confirm=self.require_unfilled)
            except Taken:
                raise self._differs() from None

    def compare(self) -> None:
        """Raise :class:`CopyFailed` unless tables and keys are those of the copy."""
        name, bucket = self.spec.name(Kind.DATABASE), self.spec.name(Kind.BUCKET)
        is_equal = database.rows(self.postgres, name) == self.copy.dump.rows and sorted(
            streams.keys(self.place.store, bucket)
        ) == sorted(item.key for item in self.copy.objects)
        if not is_equal:
            raise self._differs()

    def _differs(self) -> CopyFailed:
        return CopyFailed(
            CopyFault.RESTORED_DIFFERS,
            "what is there is not what the copy holds",
            where=f"environment {self.spec.uuid}",
            hint="abandon it, and restore into another one",
        )


def known(place: Place, source: Source) -> Copy:
    """What the manifest of `source` says; raises :class:`EnvironmentRefused` with ``copyUnknown``."""
    copy = place.copy(source.uuid, source.copy_id)
    if copy is None:
        raise EnvironmentRefused(
            Refusal.COPY_UNKNOWN,
            "there is no whole copy of that name",
            where=f"copy {source}",
            hint=f"`tenantry env backups {source.uuid}` lists those that there are",
        )
    return copy


def _contents(copy: Copy) -> Iterable[tuple[str, int, str]]:
    """Name, size and digest of everything that belongs to `copy`."""
    yield DUMP, copy.dump.size, copy.dump.sha256
    for number, item in enumerate(copy.objects):
        yield object_name(number), item.size, item.sha256
