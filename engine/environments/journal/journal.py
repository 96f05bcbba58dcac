"""Reading the journal, and beginning a subject in it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from engine.clock import Clock
from engine.environments.drivers.base import Kind
from engine.environments.journal.database import Database
from engine.environments.journal.rows import (
    Action,
    EffectRow,
    Outcome,
    ReceiptRow,
    State,
    SubjectRow,
    maybe_moment,
    to_moment,
    to_number,
)
from engine.environments.journal.tables import EFFECT, RECEIPT, SUBJECT
from engine.environments.journal.writer import Writer
from engine.environments.words import Attention, Refusal
from engine.errors import EnvironmentRefused


def new_intent_id() -> str:
    """An id that no other intent has, in the characters that every provider's marks allow."""
    return f"i-{secrets.token_hex(16)}"


@dataclass(frozen=True)
class NewSubject:
    """What is recorded of a subject before anything is dispatched, and never changes.

    `tier` is the uuid of the tier whose storage it uses.
    """

    uuid: str
    kind: str
    spec: str
    spec_digest: str
    durable: bool
    tier: str | None = None


@dataclass(frozen=True)
class Journal:
    """All subjects of one journal."""

    database: Database
    clock: Clock
    new_id: Callable[[], str] = field(default=new_intent_id)

    def begin(self, new: NewSubject) -> Writer:
        """The pen for `new`, recorded with its specification's digest if it is not there yet.

        Refused with ``specificationChanged`` where the digest is another one than was recorded, and with
        ``alreadyTombstoned`` for a uuid that is gone: neither is ever used again. A member begins only while its
        tier is ready, else it is refused with ``tierNotReady``.
        """
        with self.database.write() as connection:
            row = connection.execute(sa.select(SUBJECT).where(SUBJECT.c.uuid == new.uuid)).one_or_none()
            if row is None:
                _require_tier(connection, new)
                connection.execute(sa.insert(SUBJECT).values(self._first_row(new)))
                return self._writer(new.uuid, 1)
        found = _subject(row)
        if found.state is State.TOMBSTONED:
            raise EnvironmentRefused(
                Refusal.TOMBSTONED, "it was let go of", where=new.uuid, hint="give the new one a uuid of its own"
            )
        if (found.spec_digest, found.kind) != (new.spec_digest, new.kind):
            raise EnvironmentRefused(
                Refusal.SPECIFICATION_CHANGED,
                f"it began as {found.spec_digest}, the inventory now makes {new.spec_digest}",
                where=new.uuid,
                hint="put the entry back, or duplicate the environment under a new uuid",
            )
        return self._writer(new.uuid, found.epoch)

    def writer(self, uuid: str) -> Writer:
        """The pen for a subject in its present epoch; refused with ``environmentNotKnown``."""
        return self.writer_of(self.required(uuid))

    def writer_of(self, row: SubjectRow) -> Writer:
        """The pen for a subject as it was read: dry once it has come to another state."""
        return self._writer(row.uuid, row.epoch)

    def subject(self, uuid: str) -> SubjectRow | None:
        """What is recorded of `uuid`."""
        with self.database.read() as connection:
            row = connection.execute(sa.select(SUBJECT).where(SUBJECT.c.uuid == uuid)).one_or_none()
        return None if row is None else _subject(row)

    def required(self, uuid: str) -> SubjectRow:
        """What is recorded of `uuid`; refused with ``environmentNotKnown``."""
        found = self.subject(uuid)
        if found is None:
            raise EnvironmentRefused(
                Refusal.NOT_KNOWN, "the journal does not know it", where=uuid, hint="`tenantry env list` shows all"
            )
        return found

    def subjects(self) -> tuple[SubjectRow, ...]:
        """Every subject, the oldest first."""
        with self.database.read() as connection:
            rows = connection.execute(sa.select(SUBJECT).order_by(SUBJECT.c.created_at, SUBJECT.c.uuid)).all()
        return tuple(_subject(row) for row in rows)

    def effects(self, uuid: str | None = None) -> tuple[EffectRow, ...]:
        """Every effect of `uuid`, or of all subjects, in the order of their intents."""
        query = sa.select(EFFECT).order_by(EFFECT.c.sequence)
        with self.database.read() as connection:
            rows = connection.execute(query if uuid is None else query.where(EFFECT.c.uuid == uuid)).all()
        return tuple(_effect(row) for row in rows)

    def receipts(self, uuid: str | None) -> tuple[ReceiptRow, ...]:
        """What jobs did with `uuid`, the oldest first; None for what was done about no single subject."""
        query = sa.select(RECEIPT).where(RECEIPT.c.uuid == uuid).order_by(RECEIPT.c.id)
        with self.database.read() as connection:
            rows = connection.execute(query).all()
        return tuple(ReceiptRow(row.uuid, row.job, to_moment(row.at), row.result, row.word) for row in rows)

    def receipt(self, job: str, result: str, word: str = "") -> None:
        """Say what a job did that is about no single subject."""
        values = {"uuid": None, "job": job, "at": to_number(self.clock.now()), "result": result, "word": word}
        with self.database.write() as connection:
            connection.execute(sa.insert(RECEIPT).values(values))

    def _writer(self, uuid: str, epoch: int) -> Writer:
        return Writer(self.database, self.clock, self.new_id, uuid, epoch)

    def _first_row(self, new: NewSubject) -> dict[str, Any]:
        return {
            "uuid": new.uuid,
            "kind": new.kind,
            "epoch": 1,
            "state": State.CREATING.value,
            "spec": new.spec,
            "spec_digest": new.spec_digest,
            "durable": int(new.durable),
            "created_at": to_number(self.clock.now()),
            "tier": new.tier,
        }


def _require_tier(connection: sa.Connection, new: NewSubject) -> None:
    """Refuse a member whose tier is not ready; the transaction that records the member must ask."""
    if new.tier is None:
        return
    query = sa.select(SUBJECT.c.state).where(SUBJECT.c.uuid == new.tier, SUBJECT.c.kind == "tier")
    state = connection.scalar(query)
    if state != State.READY:
        raise EnvironmentRefused(
            Refusal.TIER_NOT_READY,
            f"its tier is {state or 'not known'}",
            where=new.uuid,
            hint="a tier is made before its members, and takes no more of them once it was retired",
        )


def _subject(row: Any) -> SubjectRow:
    return SubjectRow(
        uuid=row.uuid,
        kind=row.kind,
        epoch=row.epoch,
        state=State(row.state),
        spec_digest=row.spec_digest,
        spec=row.spec,
        durable=bool(row.durable),
        created_at=to_moment(row.created_at),
        retired_at=maybe_moment(row.retired_at),
        retained_until=maybe_moment(row.retained_until),
        tombstoned_at=maybe_moment(row.tombstoned_at),
        attention=None if row.attention is None else Attention(row.attention),
        attention_kind=None if row.attention_kind is None else Kind(row.attention_kind),
        tier=row.tier,
    )


def _effect(row: Any) -> EffectRow:
    return EffectRow(
        id=row.id,
        uuid=row.uuid,
        epoch=row.epoch,
        action=Action(row.action),
        kind=Kind(row.kind),
        name=row.name,
        digest=row.digest,
        credential=row.credential,
        intended_at=to_moment(row.intended_at),
        outcome=None if row.outcome is None else Outcome(row.outcome),
        reference=row.reference,
        word=row.word,
        ended_at=maybe_moment(row.ended_at),
    )
