"""What the journal says is due, decided without a look at any provider."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import dataclass

from engine.environments.conditions import Known, Verb, refusal
from engine.environments.journal import Journal, State, SubjectRow
from engine.subject import Subject

RETIRE = "retire"
RECLAIM = "reclaim"
EXPIRE_RETAINED = "expire-retained"
EXPIRE_BACKUPS = "expire-backups"


@dataclass(frozen=True)
class Due:
    """A job on `subject` that needs no person: `command` is the word after ``tenantry env`` or ``tenantry tier``."""

    subject: Subject
    command: str


@dataclass(frozen=True)
class Waiting:
    """A subject that stands still until a person gives one of the verbs; `word` is closed and says why."""

    subject: Subject
    state: State
    word: str


def due_by_journal(journal: Journal, now: datetime.datetime) -> tuple[Due | Waiting, ...]:
    """Deletes that are due, data whose retention is over, and what waits for a person; the oldest subject first.

    A verb that answers an unknown outcome is never due: what became of it only a person can say.
    """
    subjects = [row for row in journal.subjects() if row.state is not State.TOMBSTONED]
    return tuple(item for row in subjects for item in _of(row, journal, now))


def _of(row: SubjectRow, journal: Journal, now: datetime.datetime) -> Iterator[Due | Waiting]:
    subject = Subject(row.kind, row.uuid)
    if row.attention is not None:
        yield Waiting(subject, row.state, row.attention)
    elif row.state is State.RETIRING:
        # It sends nothing again, whatever it finds: what has no outcome then needs attention.
        yield Due(subject, RETIRE)
    elif row.state in (State.ABANDONED, State.RECLAIMING) or (row.state is State.RETAINED and not row.is_retained(now)):
        known = Known(row, journal.effects(row.uuid), frozenset(), now)
        refused = refusal(Verb.RECLAIM, known)
        if refused is None:
            yield Due(subject, RECLAIM)
        elif refusal(Verb.EXPIRE_RETAINED, known) is None:
            yield Due(subject, EXPIRE_RETAINED)
        else:
            yield Waiting(subject, row.state, refused)
