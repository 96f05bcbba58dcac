"""Every call to a parent of a whole creation and of every letting go, broken in every way; the journal keeps count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Driver, Kind
from engine.environments.drivers.claims import BUCKET as CLAIMS
from engine.environments.journal import Action, Outcome, State
from engine.environments.life import abandon
from engine.environments.observation import Absent, Present
from engine.environments.parents import LabParents
from engine.environments.verbs import retire, run
from engine.errors import EnvironmentRefused, NeedsAttention, UnknownState
from tests.lab.environments.data_world import DATA, DataWorld, Reached, build, let_go, no_leak
from tests.lab.environments.planned_faults import (
    HTTP_FAULTS,
    OPENING_FAULTS,
    POSTGRES_FAULTS,
    STATEMENT_FAULTS,
    Planned,
    PlannedHttp,
    PlannedPostgres,
)

PATIENT_SECONDS = 30.0
HASTY_SECONDS = 10.0
"""How long an answer is waited for where the fault is that none comes."""


@dataclass(frozen=True)
class Proxied:
    """Both parents, each behind a proxy that stays."""

    direct: Reached
    objects: PlannedHttp
    postgres: PlannedPostgres
    ways: dict[float, Reached]

    def proxy(self, parent: str) -> Planned:
        return self.objects if parent == "objects" else self.postgres

    def drivers(self, fault: str) -> dict[Kind, Driver]:
        return self.ways[HASTY_SECONDS if fault == "hang" else PATIENT_SECONDS].drivers


@pytest.fixture(scope="module")
def proxied(parents: LabParents) -> Iterator[Proxied]:
    objects, postgres = PlannedHttp(parents.objects.port), PlannedPostgres(parents.postgres.port)
    ways = {
        seconds: Reached(
            replace(parents.postgres, port=postgres.port, connect_seconds=2, answer_seconds=seconds),
            replace(parents.objects, endpoint=f"http://127.0.0.1:{objects.port}", answer_seconds=seconds),
        )
        for seconds in (PATIENT_SECONDS, HASTY_SECONDS)
    }
    yield Proxied(Reached.anew(parents), objects, postgres, ways)
    objects.stop()
    postgres.stop()


@dataclass(frozen=True)
class Job:
    """What is done while a parent is in trouble, and what an operator does about it afterwards."""

    prepare: Callable[[DataWorld], object]
    work: Callable[[DataWorld], object]
    recover: Callable[[DataWorld], object]

    def begin(self, proxied: Proxied, directory: Path) -> DataWorld:
        """The environment, prepared."""
        subject = build(proxied.direct, directory)
        self.prepare(_through(proxied, subject))
        return subject


def _create_again(subject: DataWorld) -> None:
    try:
        subject.create()
    except NeedsAttention:
        assert subject.attention == "createOutcomeUnknown"
        abandon(subject.parts, subject.spec.uuid)
    else:
        assert subject.state is State.READY
        assert _seen(subject) == {kind: subject.spec.resource_digest(kind) for kind in DATA}
        assert subject.create() == ()
    let_go(subject)


def _retire(subject: DataWorld) -> None:
    if subject.state is not State.TOMBSTONED:
        retire(subject.parts, subject.spec.uuid)


def _retire_again(subject: DataWorld) -> None:
    try:
        _retire(subject)
    except NeedsAttention:
        assert subject.attention in ("deleteFailed", "deleteOutcomeUnknown")
    let_go(subject)


def _reclaim(subject: DataWorld) -> None:
    run(subject.parts, Verb.RECLAIM, subject.spec.uuid)


JOBS = {
    "create": Job(lambda subject: None, DataWorld.create, _create_again),
    "retire": Job(DataWorld.create, _retire, _retire_again),
    "reclaim": Job(DataWorld.create, _reclaim, let_go),
}

SAMPLE = {
    ("create", "objects"): {"late": 5, "500": 10, "401": 20, "403": 20, "408": 20, "429": 20, "refused": 9, "half": 9},
    ("retire", "objects"): {"late": 6, "500": 12},
    ("create", "postgres"): {"late": 7, "cut": 14, "42501": 15, "53300": 4, "28P01": 4, "57P01": 20, "refused": 4},
    ("retire", "postgres"): {"late": 8, "57P01": 15, "57P03": 4},
}
"""Job and parent -> fault -> every which call is broken with it, each time at other ones."""


@pytest.mark.parametrize(("job", "parent"), SAMPLE)
def test_trouble_at_a_sample_of_calls(proxied: Proxied, tmp_path: Path, job: str, parent: str) -> None:
    faults = SAMPLE[job, parent]
    calls = _calls(proxied, tmp_path / "clean", JOBS[job], parent)
    for number, (fault, step) in enumerate(faults.items()):
        points = _points(calls, fault, parent)
        for at in points[number % step :: step]:
            _break(proxied, tmp_path / f"{fault}-{at}", JOBS[job], parent, fault, at)


@pytest.mark.parametrize(("job", "parent"), [("create", "objects"), ("create", "postgres"), ("retire", "postgres")])
def test_a_call_that_is_never_answered(proxied: Proxied, tmp_path: Path, job: str, parent: str) -> None:
    calls = _calls(proxied, tmp_path / "clean", JOBS[job], parent)
    _break(proxied, tmp_path / "hang", JOBS[job], parent, "hang", len(calls) // 2)


@pytest.mark.soak
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize(
    ("parent", "fault"),
    [*(("objects", each) for each in HTTP_FAULTS), *(("postgres", each) for each in POSTGRES_FAULTS)],
)
def test_trouble_at_every_call(proxied: Proxied, tmp_path: Path, job: str, parent: str, fault: str) -> None:
    calls = _calls(proxied, tmp_path / "clean", JOBS[job], parent)
    for at in _points(calls, fault, parent):
        _break(proxied, tmp_path / f"{fault}-{at}", JOBS[job], parent, fault, at)


def _points(calls: Sequence[str], fault: str, parent: str) -> list[int]:
    """The numbers of the calls that can break with `fault`."""
    if parent == "objects":
        return list(range(1, len(calls) + 1))
    fitting = {True: fault in OPENING_FAULTS, False: fault in STATEMENT_FAULTS}
    return [number for number, call in enumerate(calls, 1) if fitting[call == "open"]]


def _calls(proxied: Proxied, directory: Path, job: Job, parent: str) -> tuple[str, ...]:
    """What the job asks of `parent` where nothing breaks."""
    subject = job.begin(proxied, directory)
    proxy = proxied.proxy(parent)
    proxy.plan()
    job.work(_through(proxied, subject))
    calls = tuple(proxy.calls)
    # What is counted below is what is sent: exactly one of each.
    for action in (Action.CREATE, *([Action.DELETE] if subject.state is State.TOMBSTONED else [])):
        counts = {count for _, count in _arrived(proxied, subject, action)}
        assert counts == {1}, (action, counts)
    let_go(subject)
    return calls


def _break(proxied: Proxied, directory: Path, job: Job, parent: str, fault: str, at: int) -> None:
    """Do the job with that call broken, look at what it left behind, and go on as an operator would."""
    subject = job.begin(proxied, directory)
    proxy = proxied.proxy(parent)
    proxy.plan(fault, at)
    said = ""
    try:
        job.work(_through(proxied, subject, fault))
    except (NeedsAttention, UnknownState, EnvironmentRefused) as error:
        said = str(error)
    finally:
        proxy.end_plan()
    assert proxy.broken
    assert "secret words" not in said
    _is_sound(proxied, subject)
    no_leak(subject)
    # The operator goes on over the same proxies, so that what is sent is counted to the end.
    job.recover(_through(proxied, subject))
    _is_sound(proxied, subject)
    assert subject.state is State.TOMBSTONED


def _through(proxied: Proxied, subject: DataWorld, fault: str = "") -> DataWorld:
    return replace(subject, parts=replace(subject.parts, drivers=proxied.drivers(fault)))


def _is_sound(proxied: Proxied, subject: DataWorld) -> None:
    """Nothing was let go of while it is there, nothing is there without an intent, nothing was sent twice."""
    if subject.state is State.TOMBSTONED:
        assert _seen(subject) == {}
    creates, deletes = subject.outcomes(Action.CREATE), subject.outcomes(Action.DELETE)
    for kind in DATA:
        assert sum(outcome is not Outcome.REFUSED for outcome in creates.get(kind, [])) <= 1
    for action, intended in ((Action.CREATE, creates), (Action.DELETE, deletes)):
        for kind, count in _arrived(proxied, subject, action):
            assert count <= len(intended.get(kind, [])), (action, kind)


def _seen(subject: DataWorld) -> dict[Kind, str]:
    """The digests of what is there under the environment's names."""
    seen = {kind: driver.observe(subject.spec.name(kind)) for kind, driver in subject.parts.drivers.items()}
    assert all(isinstance(each, Present | Absent) for each in seen.values()), seen
    return {kind: each.digest for kind, each in seen.items() if isinstance(each, Present)}


def _arrived(proxied: Proxied, subject: DataWorld, action: Action) -> list[tuple[Kind, int]]:
    """How many of each request to make, or to delete, one of the environment's resources reached its provider."""
    name = {kind: subject.spec.name(kind).encode() for kind in DATA}
    bucket, user, at = name[Kind.BUCKET], b"UserName=%b" % name[Kind.KEY], f"/{CLAIMS}/".encode()
    statements, requests = {
        Action.CREATE: (
            {Kind.DATABASE: b'CREATE DATABASE "%b"', Kind.ROLE: b'CREATE ROLE "%b"'},
            [
                (Kind.BUCKET, [b"PUT /%b HTTP" % bucket]),
                (Kind.BUCKET, [b"PUT %b%b HTTP" % (at, bucket)]),
                (Kind.KEY, [b"PUT %b%b" % (at, name[Kind.KEY])]),
                (Kind.KEY, [b"Action=CreateUser&", user]),
                (Kind.KEY, [b"Action=CreateAccessKey&", user]),
                (Kind.KEY, [b"PUT /%b?policy HTTP" % bucket]),
            ],
        ),
        Action.DELETE: (
            {Kind.DATABASE: b'DROP DATABASE IF EXISTS "%b"', Kind.ROLE: b'DROP ROLE IF EXISTS "%b"'},
            [
                (Kind.BUCKET, [b"DELETE /%b HTTP" % bucket]),
                (Kind.BUCKET, [b"DELETE %b%b HTTP" % (at, bucket)]),
                (Kind.KEY, [b"DELETE %b%b" % (at, name[Kind.KEY])]),
                (Kind.KEY, [b"Action=DeleteUser&", user]),
                (Kind.KEY, [b"DELETE /%b?policy HTTP" % bucket]),
            ],
        ),
    }[action]
    asked = [(kind, proxied.postgres.arrived(text % name[kind])) for kind, text in statements.items()]
    return asked + [(kind, proxied.objects.arrived(*parts)) for kind, parts in requests]
