"""What has to be the case for each of the verbs to be given on an environment of data resources."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.effects import Resource
from engine.environments.journal import Action, Outcome
from engine.environments.verbs import retire
from engine.registry.environments_model import Lifetime
from tests.lab.environments.data_world import DataWorld


def _resource(subject: DataWorld, kind: Kind) -> Resource:
    spec = subject.spec
    return Resource(subject.parts.drivers[kind], spec.name(kind), spec.resource_digest(kind), subject.parts.credential)


def _lost_delete(subject: DataWorld) -> None:
    subject.create()
    writer = subject.parts.journal.writer(subject.spec.uuid).retire(None)
    writer.conclude(writer.intend(_resource(subject, Kind.BUCKET).intent(Action.DELETE)), Outcome.LOST)


def _vanished(subject: DataWorld) -> None:
    subject.create()
    driver, name = subject.parts.drivers[Kind.KEY], subject.spec.name(Kind.KEY)
    (mark,) = (owned.mark for owned in driver.list_owned() if owned.name == name)
    driver.delete(name, mark)


def _lost_create(subject: DataWorld) -> None:
    writer = subject.parts.journal.begin(subject.spec.subject())
    intent = writer.intend(_resource(subject, Kind.DATABASE).intent(Action.CREATE))
    subject.parts.drivers[Kind.DATABASE].create(subject.request(Kind.DATABASE, intent))


def _retained(subject: DataWorld) -> None:
    subject.create()
    retire(subject.parts, subject.spec.uuid)


PREPARED: Mapping[Verb, Callable[[DataWorld], object]] = {
    Verb.RECLAIM: DataWorld.create,
    Verb.RECLAIM_FAILED_DELETE: _lost_delete,
    Verb.RECLAIM_UNJOURNALLED_DELETE: _vanished,
    Verb.RECLAIM_UNJOURNALLED_CREATE: _lost_create,
    Verb.EXPIRE_RETAINED: _retained,
}


def lifetime_of(verb: Verb) -> Lifetime:
    """The lifetime of an environment on which `verb` is given."""
    return Lifetime.DURABLE if verb is Verb.EXPIRE_RETAINED else Lifetime.DISPOSABLE
