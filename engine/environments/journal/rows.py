"""What the journal holds, as frozen values."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from enum import StrEnum

from engine.environments.drivers.base import Kind
from engine.environments.words import Attention

_START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_UNIT = datetime.timedelta(microseconds=1)


class State(StrEnum):
    """Where a subject is in its life; docs/environments.md draws it."""

    CREATING = "creating"
    READY = "ready"
    ABANDONED = "abandoned"
    RETIRING = "retiring"
    RETAINED = "retained"
    RECLAIMING = "reclaiming"
    TOMBSTONED = "tombstoned"


class Action(StrEnum):
    """What an effect does to its resource."""

    CREATE = "create"
    DELETE = "delete"


class Outcome(StrEnum):
    """What is known of an effect that was intended: it took place, provably did not, or nobody can tell."""

    DONE = "done"
    REFUSED = "refused"
    LOST = "lost"


@dataclass(frozen=True)
class SubjectRow:
    """One environment or tier. `epoch` is the fence: whoever writes must have read this one.

    `tier` is the uuid of the tier that an environment is a member of.
    """

    uuid: str
    kind: str
    epoch: int
    state: State
    spec_digest: str
    spec: str
    durable: bool
    created_at: datetime.datetime
    retired_at: datetime.datetime | None
    retained_until: datetime.datetime | None
    tombstoned_at: datetime.datetime | None
    attention: Attention | None
    attention_kind: Kind | None
    tier: str | None

    def is_retained(self, now: datetime.datetime) -> bool:
        """Whether its data must stay at `now`: it was retired, and the retention is not over."""
        return self.retained_until is not None and now < self.retained_until


@dataclass(frozen=True)
class EffectRow:
    """One intent and what became of it; no `outcome` is an open intent."""

    id: str
    uuid: str
    epoch: int
    action: Action
    kind: Kind
    name: str
    digest: str
    credential: str
    intended_at: datetime.datetime
    outcome: Outcome | None
    reference: str | None
    word: str | None
    ended_at: datetime.datetime | None

    @property
    def is_uncertain(self) -> bool:
        """Whether it may or may not have taken place, or may still do so."""
        return self.outcome in (None, Outcome.LOST)


@dataclass(frozen=True)
class ReceiptRow:
    """What a job did with a subject, once it ended."""

    uuid: str | None
    job: str
    at: datetime.datetime
    result: str
    word: str


def to_number(moment: datetime.datetime) -> int:
    """`moment` as the journal keeps it: whole microseconds since 1970."""
    return (moment - _START) // _UNIT


def to_moment(number: int) -> datetime.datetime:
    """The moment that `number` stands for."""
    return _START + number * _UNIT


def maybe_moment(number: int | None) -> datetime.datetime | None:
    """The moment that `number` stands for; None where there was none."""
    return None if number is None else to_moment(number)
