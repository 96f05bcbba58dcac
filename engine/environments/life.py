"""Creating and abandoning a subject, and what every job on one works with."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from engine.clock import Clock
from engine.environments.drivers.base import CreateRequest, Driver, Kind
from engine.environments.effects import Held, Performer, Resource
from engine.environments.journal import Journal, State, SubjectRow, Writer
from engine.environments.spec import Specification
from engine.environments.words import Refusal
from engine.errors import EnvironmentRefused, MissingPart

RETENTION = datetime.timedelta(hours=168)
"""How long a durable subject's data stays after it was retired."""

DATA = frozenset({Kind.DATABASE, Kind.ROLE, Kind.BUCKET, Kind.KEY})

LETTING_GO = (Kind.ROUTE, Kind.WEB, Kind.GATEWAY, Kind.KEY, Kind.BUCKET, Kind.ROLE, Kind.DATABASE)
"""Routing first, so that nobody is sent to what goes; what opens a store before the store."""

Request = Callable[[Kind, str], CreateRequest]
"""Gives the request for a kind under an intent's id; its secrets are on the disk before it returns."""


def nothing_else(uuid: str) -> None:
    """What is to be done about a subject beside its resources and the journal, where that is all there is of it."""


@dataclass(frozen=True)
class Parts:
    """What a job on environments works with. `credential` is the id of what authorizes requests, never a secret.

    `before_letting_go` is called with a uuid once it is sure that it may be let go of, and before anything is changed:
    whatever still wants the subject must know by then, so it raises unless that is so. `before_tombstone` removes what
    is kept of a uuid beside its resources, and raises unless that is gone.
    """

    journal: Journal
    drivers: Mapping[Kind, Driver]
    clock: Clock
    credential: str
    perform: Performer
    retention: datetime.timedelta = RETENTION
    before_letting_go: Callable[[str], None] = nothing_else
    before_tombstone: Callable[[str], None] = nothing_else


class Providers(Protocol):
    """Where resources are looked for, and the id of what authorizes requests there; a journal is not needed for it."""

    @property
    def drivers(self) -> Mapping[Kind, Driver]: ...

    @property
    def credential(self) -> str: ...


def resources(providers: Providers, spec: Specification, kinds: Sequence[Kind]) -> tuple[Resource, ...]:
    """The resources of `kinds` that `spec` has, in that order; a route belongs to whoever has a gateway."""
    has = {*spec.kinds, *((Kind.ROUTE,) if Kind.GATEWAY in spec.kinds else ())}
    return tuple(
        Resource(_driver(providers, kind), spec.name(kind), spec.resource_digest(kind), providers.credential)
        for kind in kinds
        if kind in has
    )


def _driver(providers: Providers, kind: Kind) -> Driver:
    """The driver of `kind`; without it nothing can be said of such a resource, least of all that it is absent."""
    if kind not in providers.drivers:
        raise MissingPart(
            f"there is no driver of kind {kind} here",
            where="this machine",
            hint="`tenantry doctor` says what is missing",
        )
    return providers.drivers[kind]


def nothing() -> None:
    """What is to be done at a point of a creation where there is nothing to do."""


def create(
    parts: Parts,
    spec: Specification,
    request: Request,
    *,
    seed: Callable[[], None] = nothing,
    prove: Callable[[], None] = nothing,
) -> tuple[Kind, ...]:
    """Make every resource of `spec` that is not there yet; the kinds that were made now.

    May be called again after any end of an earlier call, also of a subject that is ready: it observes anew. `seed`
    is called until the subject is ready once its stores are there and before anything uses them, `prove` when all
    is there: it is ready only if that returns. Raises :class:`EnvironmentRefused`, :class:`NeedsAttention`,
    :class:`UnknownState`, and whatever these two raise.
    """
    writer = parts.journal.begin(spec.subject())
    found = parts.journal.required(spec.uuid)
    require_creatable(found)
    everything = resources(parts, spec, (*spec.kinds, Kind.ROUTE))
    stores = tuple(item for item in everything if item.driver.kind in DATA)
    made = _make(parts, writer, stores, request)
    if found.state is State.CREATING:
        seed()
    made += _make(parts, writer, tuple(item for item in everything if item not in stores), request)
    prove()
    if found.state is not State.READY or found.attention is not None:
        writer.move(State.READY).receipt("create", "done")
    return made


def require_creatable(subject: SubjectRow) -> None:
    """Raise :class:`EnvironmentRefused` for what is on its way out, or gone."""
    if subject.state in (State.CREATING, State.READY):
        return
    word = Refusal.TOMBSTONED if subject.state is State.TOMBSTONED else Refusal.NOT_CREATING
    raise EnvironmentRefused(
        word,
        f"it is {subject.state}",
        where=subject.uuid,
        hint="write `retired: true` into its entry, or remove it; a new environment has a new uuid",
    )


def _make(parts: Parts, writer: Writer, wanted: Sequence[Resource], request: Request) -> tuple[Kind, ...]:
    made = []
    for resource in wanted:
        kind = resource.driver.kind
        if parts.perform.make(Held(parts.journal, writer), resource, partial(request, kind)):
            made.append(kind)
    return tuple(made)


def abandon(parts: Parts, uuid: str) -> Writer:
    """Give up a creation that has not ended; what it made, or may have made, is left to the verbs."""
    found = parts.journal.required(uuid)
    if found.state is not State.CREATING:
        raise EnvironmentRefused(Refusal.NOT_CREATING, f"it is {found.state}", where=uuid)
    parts.before_letting_go(uuid)
    writer = parts.journal.writer_of(found).fence(State.ABANDONED)
    writer.receipt("abandon", "done")
    return writer
