"""What may write about one subject: everything it writes is bound to the epoch that it read.

Every change of state begins an epoch, so whoever is in the epoch that it read is in the state that it read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from engine.clock import Clock
from engine.environments.drivers.base import Kind
from engine.environments.journal.database import Database
from engine.environments.journal.rows import Action, EffectRow, Outcome, State, to_number
from engine.environments.journal.tables import EFFECT, RECEIPT, SUBJECT
from engine.environments.words import Attention, Refusal
from engine.errors import EnvironmentRefused, RecordFailed


def _nothing(connection: sa.Connection) -> None:
    """What is to be held true in a transaction that may begin anyway."""


@dataclass(frozen=True)
class Intent:
    """An effect that is about to be sent: `credential` is the id of what it will be authorized with, never a secret."""

    action: Action
    kind: Kind
    name: str
    digest: str
    credential: str


@dataclass(frozen=True)
class Writer:
    """The pen for one subject in one epoch.

    Every method is one committed transaction, and raises :class:`EnvironmentRefused` with the word ``fenced`` where
    a later epoch has begun: whoever holds this pen was thought dead. What lets go of a tier is refused with
    ``tierHasMembers`` while one of its members is not tombstoned.
    """

    database: Database
    clock: Clock
    new_id: Callable[[], str]
    uuid: str
    epoch: int

    def intend(self, intent: Intent) -> str:
        """Commit the intent and return its id; refused with ``intentStands`` where one like it has no outcome.

        A create stands in the way of every further one unless it provably did nothing.
        """
        found = self.new_id()
        values = {
            "id": found,
            "action": intent.action.value,
            "kind": intent.kind.value,
            "name": intent.name,
            "digest": intent.digest,
            "credential": intent.credential,
            "intended_at": self._now(),
        }
        mine = self._mine(values, SUBJECT.c.epoch)
        statement = sa.insert(EFFECT).from_select(["uuid", "epoch", *values], mine)
        try:
            self._write(statement)
        except sa.exc.IntegrityError as error:
            raise EnvironmentRefused(
                Refusal.INTENT_STANDS,
                f"the {intent.action} of {intent.kind} was intended already",
                where=self.uuid,
                hint="another operator is at work, or one died; `tenantry env show` says what is known",
            ) from error
        return found

    def conclude(self, effect: str, outcome: Outcome, *, reference: str | None = None, word: str | None = None) -> None:
        """Commit what became of an intent that was open or lost."""
        self._write(
            sa.update(EFFECT)
            .where(EFFECT.c.id == effect, EFFECT.c.uuid == self.uuid, self._is_mine())
            .where(sa.or_(EFFECT.c.outcome.is_(None), EFFECT.c.outcome == Outcome.LOST.value))
            .values(outcome=outcome.value, reference=reference, word=word, ended_at=self._now())
        )

    def move(self, state: State) -> Writer:
        """Go on to `state`, in the next epoch; nothing needs attention any more."""
        if state is State.TOMBSTONED:
            return self._next_epoch(state, tombstoned_at=self._now())
        return self._next_epoch(state)

    def fence(self, state: State, seen: Sequence[EffectRow] | None = None) -> Writer:
        """Let go of the subject, in `state` and the next epoch: every other pen for it is dry from here on.

        With `seen`, only while the journal holds just these effects with these outcomes; else ``fenced``.
        """

        def first(connection: sa.Connection) -> None:
            self._require_no_members(connection)
            if seen is not None:
                self._require_effects(connection, seen)

        return self._next_epoch(state, first)

    def retire(self, retention: datetime.timedelta | None) -> Writer:
        """Begin the next epoch as retiring, from the first time on that it is called.

        The moments of retirement and of the retention's end are recorded once and never moved.
        """
        now = self.clock.now()
        until = None if retention is None else to_number(now + retention)
        return self._next_epoch(
            State.RETIRING,
            self._require_no_members,
            retired_at=sa.func.coalesce(SUBJECT.c.retired_at, to_number(now)),
            retained_until=sa.case((SUBJECT.c.retired_at.is_(None), until), else_=SUBJECT.c.retained_until),
        )

    def need_attention(self, word: Attention, kind: Kind) -> None:
        """Say why the subject stands still."""
        self._write(self._update().values(attention=word.value, attention_kind=kind.value))

    def receipt(self, job: str, result: str, word: str = "") -> None:
        """Say what a job did."""
        values = {"job": job, "at": self._now(), "result": result, "word": word}
        self._write(sa.insert(RECEIPT).from_select(["uuid", *values], self._mine(values)))

    def _next_epoch(self, state: State, first: Callable[[sa.Connection], None] = _nothing, **values: object) -> Writer:
        changes = {"epoch": self.epoch + 1, "state": state.value, "attention": None, "attention_kind": None, **values}
        self._write(self._update().values(**changes), first)
        return replace(self, epoch=self.epoch + 1)

    def _mine(self, values: Mapping[str, object], *columns: sa.Column[Any]) -> sa.Select[Any]:
        """One row of the subject's uuid, `columns` and `values`; none where a later epoch has begun."""
        literals = (sa.literal(value).label(key) for key, value in values.items())
        return sa.select(SUBJECT.c.uuid, *columns, *literals).where(
            SUBJECT.c.uuid == self.uuid, SUBJECT.c.epoch == self.epoch
        )

    def _update(self) -> sa.Update:
        return sa.update(SUBJECT).where(SUBJECT.c.uuid == self.uuid, SUBJECT.c.epoch == self.epoch)

    def _write(self, statement: sa.Insert | sa.Update, first: Callable[[sa.Connection], None] = _nothing) -> None:
        with self.database.write() as connection:
            first(connection)
            if connection.execute(statement).rowcount == 1:
                return
            epoch = connection.scalar(sa.select(SUBJECT.c.epoch).where(SUBJECT.c.uuid == self.uuid))
        if epoch == self.epoch:
            raise RecordFailed("the journal has no such line any more", where=self.uuid)
        raise EnvironmentRefused(
            Refusal.FENCED,
            f"epoch {epoch} has begun, this job is of epoch {self.epoch}",
            where=self.uuid,
            hint="another job went on with this environment; look at `tenantry env show` before anything else",
        )

    def _require_no_members(self, connection: sa.Connection) -> None:
        # In the transaction that lets go of the tier: a member that begins at this moment comes before or after it.
        members = sa.select(sa.func.count()).where(
            SUBJECT.c.tier == self.uuid, SUBJECT.c.state != State.TOMBSTONED.value
        )
        count = connection.scalar(members)
        if count:
            raise EnvironmentRefused(
                Refusal.TIER_HAS_MEMBERS, str(count), where=self.uuid, hint="let go of every member first"
            )

    def _require_effects(self, connection: sa.Connection, seen: Sequence[EffectRow]) -> None:
        rows = connection.execute(sa.select(EFFECT.c.id, EFFECT.c.outcome).where(EFFECT.c.uuid == self.uuid))
        if {(row.id, row.outcome) for row in rows} != {(effect.id, effect.outcome) for effect in seen}:
            raise EnvironmentRefused(
                Refusal.FENCED,
                "another job has gone on with it since it was looked at",
                where=self.uuid,
                hint="look at `tenantry env show` and give the command again",
            )

    def _is_mine(self) -> sa.ColumnElement[bool]:
        return sa.exists().where(SUBJECT.c.uuid == self.uuid, SUBJECT.c.epoch == self.epoch)

    def _now(self) -> int:
        return to_number(self.clock.now())
