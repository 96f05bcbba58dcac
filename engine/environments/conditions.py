"""The five verbs and the one condition under which each may begin."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from engine.environments.drivers.base import Kind
from engine.environments.journal import Action, EffectRow, Outcome, State, SubjectRow
from engine.environments.life import DATA
from engine.environments.words import Refusal


class Verb(StrEnum):
    """How an operator lets go of a subject, after the one thing that is known of it."""

    RECLAIM = "reclaim"
    RECLAIM_FAILED_DELETE = "reclaimFailedDelete"
    RECLAIM_UNJOURNALLED_DELETE = "reclaimUnjournalledDelete"
    RECLAIM_UNJOURNALLED_CREATE = "reclaimUnjournalledCreate"
    EXPIRE_RETAINED = "expireRetained"


@dataclass(frozen=True)
class Known:
    """What is known of a subject: its row, its effects, and which kinds the provider says are `absent`."""

    subject: SubjectRow
    effects: Sequence[EffectRow]
    absent: frozenset[Kind]
    now: datetime.datetime

    @property
    def uncertain_creates(self) -> frozenset[Kind]:
        """Kinds that were intended, and may exist or come to exist."""
        return frozenset(item.kind for item in self._all(Action.CREATE) if item.is_uncertain)

    @property
    def failed_deletes(self) -> frozenset[Kind]:
        """Kinds whose last delete was refused, or has no certain outcome."""
        last = {item.kind: item for item in self._all(Action.DELETE)}
        return frozenset(kind for kind, item in last.items() if item.outcome is not Outcome.DONE)

    @property
    def unjournalled_deletes(self) -> frozenset[Kind]:
        """Kinds that were made, for which no delete is journalled, and which the provider says are absent."""
        made = {item.kind for item in self._all(Action.CREATE) if item.outcome is Outcome.DONE}
        return frozenset(made - {item.kind for item in self._all(Action.DELETE)}) & self.absent

    def _all(self, action: Action) -> list[EffectRow]:
        return [item for item in self.effects if item.action is action]


def refusal(verb: Verb, known: Known) -> Refusal | None:
    """Why `verb` may not begin, or None where its condition holds."""
    state = known.subject.state
    if state is State.TOMBSTONED:
        return Refusal.TOMBSTONED
    if state is State.READY and known.subject.durable:
        return Refusal.RETENTION_APPLIES
    return _CONDITIONS[verb](known)


def delete_refusal(subject: SubjectRow, kind: Kind, now: datetime.datetime) -> Refusal | None:
    """Why the subject's resource of `kind` may not be deleted at `now`, whoever asks; None if it may."""
    if subject.state not in (State.RETIRING, State.RECLAIMING):
        return Refusal.NOT_LETTING_GO
    return Refusal.RETENTION_RUNNING if kind in DATA and subject.is_retained(now) else None


def _reclaim(known: Known) -> Refusal | None:
    if known.subject.state is State.CREATING or known.uncertain_creates:
        return Refusal.CREATE_NOT_ENDED
    if known.failed_deletes:
        return Refusal.DELETE_FAILED
    if known.subject.retained_until is not None:
        return Refusal.RETENTION_RUNNING if known.subject.is_retained(known.now) else Refusal.RETENTION_APPLIES
    return None


def _reclaim_failed_delete(known: Known) -> Refusal | None:
    return None if known.failed_deletes else Refusal.NO_FAILED_DELETE


def _reclaim_unjournalled_delete(known: Known) -> Refusal | None:
    return None if known.unjournalled_deletes else Refusal.NO_UNJOURNALLED_DELETE


def _reclaim_unjournalled_create(known: Known) -> Refusal | None:
    return None if known.uncertain_creates else Refusal.NO_UNJOURNALLED_CREATE


def _expire_retained(known: Known) -> Refusal | None:
    if known.subject.retained_until is None or known.subject.state not in (State.RETAINED, State.RECLAIMING):
        return Refusal.NOT_RETAINED
    if known.subject.is_retained(known.now):
        return Refusal.RETENTION_RUNNING
    return Refusal.DELETE_FAILED if known.failed_deletes else None


_CONDITIONS: Mapping[Verb, Callable[[Known], Refusal | None]] = {
    Verb.RECLAIM: _reclaim,
    Verb.RECLAIM_FAILED_DELETE: _reclaim_failed_delete,
    Verb.RECLAIM_UNJOURNALLED_DELETE: _reclaim_unjournalled_delete,
    Verb.RECLAIM_UNJOURNALLED_CREATE: _reclaim_unjournalled_create,
    Verb.EXPIRE_RETAINED: _expire_retained,
}
