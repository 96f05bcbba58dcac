"""What a converge would do with each entry, told without lock or change."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.environments.drivers.base import Kind
from engine.environments.effects import Step, Verdict, to_be_absent, to_be_present
from engine.environments.hosting.workspace import Entry, Hosting
from engine.environments.journal import State, SubjectRow
from engine.environments.life import DATA, LETTING_GO, require_creatable, resources
from engine.environments.observation import Absent, Observation, Present, Unknown
from engine.environments.spec import Specification
from engine.environments.verbs import require_retirable
from engine.environments.words import Refusal
from engine.errors import EnvironmentRefused, InvalidInput, UnknownState
from engine.registry.environments import ENVIRONMENTS_FILE

LET_GO = frozenset({State.ABANDONED, State.RETAINED, State.RECLAIMING, State.TOMBSTONED})
"""States of a retired entry in which a converge has nothing to do: it is gone, kept for a while, or a verb's."""


@dataclass(frozen=True)
class ResourcePlan:
    """One resource as it was `found`, and what would be done."""

    kind: Kind
    name: str
    found: Observation
    verdict: Verdict

    @property
    def step(self) -> Step:
        return self.verdict.step

    @property
    def word(self) -> str | None:
        """Why a run would stop there."""
        return self.verdict.word

    @property
    def seen(self) -> str:
        match self.found:
            case Present():
                return "present"
            case Absent():
                return "absent"
            case Unknown(word):
                return f"unknown: {word}"


@dataclass(frozen=True)
class SubjectPlan:
    """The plan of one entry of the inventory. `state` is the journal's, None for what has not begun."""

    uuid: str
    kind: str
    project: str
    state: str | None
    attention: str | None
    retires: bool
    spec_digest: str
    resources: tuple[ResourcePlan, ...]

    @property
    def has_changes(self) -> bool:
        return any(item.step in (Step.CREATE, Step.DELETE, Step.NOTE) for item in self.resources)

    @property
    def stops(self) -> bool:
        """Whether a converge would end in an error."""
        return any(item.step is Step.STOP for item in self.resources)

    @property
    def is_unseen(self) -> bool:
        """Whether nothing but providers that did not answer would stop a converge."""
        reasons = [item.verdict.reason for item in self.resources if item.step is Step.STOP]
        return bool(reasons) and all(isinstance(reason, Unknown) for reason in reasons)

    @property
    def digest(self) -> str:
        """One digest of everything that the plan says."""
        text = json.dumps(self._content(), sort_keys=True)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def document(self) -> dict[str, Any]:
        """The plan as a part of the public document."""
        return {**self._content(), "changes": self.has_changes, "stops": self.stops, "digest": self.digest}

    def _content(self) -> dict[str, Any]:
        return {
            "uuid": self.uuid,
            "kind": self.kind,
            "project": self.project,
            "state": self.state,
            "attention": self.attention,
            "retires": self.retires,
            "spec_digest": self.spec_digest,
            "resources": [
                {
                    "kind": item.kind.value,
                    "name": item.name,
                    "seen": item.seen,
                    "step": item.step.value,
                    "word": item.word,
                }
                for item in self.resources
            ],
        }


def check_recorded(hosting: Hosting) -> None:
    """Raise :class:`InvalidInput` for every entry that is no longer what was recorded when it began.

    What an environment is never changes, which is told before anything is touched. An entry whose uuid was let go of
    is that subject's own error: a job that died may have left it, and others have nothing to do with it.
    """
    recorded = {row.uuid: row for row in hosting.journal.subjects()} if hosting.journal_file.exists() else {}
    problems = [
        problem
        for uuid in hosting.entries
        if uuid in recorded and (problem := _contradiction(hosting.specifications[uuid], recorded[uuid]))
    ]
    if problems:
        raise InvalidInput(
            "; ".join(problems),
            where=str(hosting.fleet.root / ENVIRONMENTS_FILE),
            hint="put the entry back as it was; a changed environment is a new one under a new uuid",
        )


def plan_of(hosting: Hosting, uuid: str) -> SubjectPlan:
    """Look at every resource of the entry `uuid`; raises :class:`InvalidInput` for one that is not there."""
    entry, spec = hosting.entry(uuid), hosting.specifications[uuid]
    row = hosting.journal.subject(uuid) if hosting.journal_file.exists() else None
    return SubjectPlan(
        uuid=uuid,
        kind=entry.subject.kind,
        project=entry.project,
        state=row.state.value if row else None,
        attention=row.attention.value if row and row.attention else None,
        retires=entry.retired,
        spec_digest=spec.digest,
        resources=tuple(_resources(hosting, entry, spec, row)),
    )


def _contradiction(spec: Specification, row: SubjectRow) -> str | None:
    if row.state is State.TOMBSTONED or row.spec_digest == spec.digest:
        return None
    keys = ", ".join(_changed_keys(json.loads(row.spec), json.loads(spec.canonical())))
    return f"{row.uuid}: {Refusal.SPECIFICATION_CHANGED}, {keys}"


def _changed_keys(before: dict[str, Any], now: dict[str, Any], above: str = "") -> Iterator[str]:
    for key in sorted({*before, *now}):
        one, other = before.get(key), now.get(key)
        if isinstance(one, dict) and isinstance(other, dict):
            yield from _changed_keys(one, other, f"{above}{key}.")
        elif one != other:
            yield f"{above}{key}"


def _resources(hosting: Hosting, entry: Entry, spec: Specification, row: SubjectRow | None) -> Iterator[ResourcePlan]:
    if entry.retired and (row is None or row.state in LET_GO):
        return
    effects = hosting.journal.effects(spec.uuid) if row else ()
    kinds = LETTING_GO if entry.retired else (*spec.kinds, Kind.ROUTE)
    kept = DATA if entry.retired and row is not None and _keeps_data(row, hosting.clock.now()) else frozenset()
    halt = _halt(hosting, entry, row)
    # Not through the hosting's parts, which make a journal: who only looks leaves nothing behind.
    for item in resources(hosting, spec, kinds):
        observation = hosting.performer.look(item)
        if halt is not None:
            verdict = halt
        elif item.driver.kind in kept:
            verdict = Verdict(Step.NOTHING)
        elif entry.retired:
            verdict = to_be_absent(item, effects, observation)
        else:
            verdict = to_be_present(item, effects, observation)
        yield ResourcePlan(item.driver.kind, item.name, observation, verdict)


def _keeps_data(row: SubjectRow, now: datetime.datetime) -> bool:
    """Whether a retirement at `now` leaves the data: of what has yet to retire, or was retired not long ago."""
    return row.is_retained(now) or (row.durable and row.state is State.READY)


def _halt(hosting: Hosting, entry: Entry, row: SubjectRow | None) -> Verdict | None:
    """What stops a converge before it looks at any resource."""
    try:
        if row is not None:
            require_retirable(row) if entry.retired else require_creatable(row)
        hosting.require_parents()
    except EnvironmentRefused as error:
        return Verdict(Step.STOP, Refusal(error.word), error.message)
    except UnknownState as error:
        return Verdict(Step.STOP, Unknown(error.message), error.message)
    return None
