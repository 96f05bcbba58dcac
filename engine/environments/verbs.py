"""Letting go of a subject: retirement and the five verbs, in their common order.

Fence the journal, take the routing away, observe every resource, delete what is present, wait until a request that
was still under way must have landed, observe again, and only if everything is absent write that it is gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.environments.conditions import Known, Verb, refusal
from engine.environments.drivers.base import Kind
from engine.environments.effects import Held, Resource, is_ours, made_by, stopped, unobserved
from engine.environments.journal import EffectRow, Outcome, State, SubjectRow, Writer
from engine.environments.life import DATA, LETTING_GO, Parts, resources
from engine.environments.observation import Absent, Observation, Present, Unknown
from engine.environments.spec import Specification, read
from engine.environments.words import Attention, Refusal
from engine.errors import EnvironmentRefused


def retire(parts: Parts, uuid: str) -> State:
    """End a subject that is ready: a durable one keeps its data for the retention, a disposable one goes at once.

    May be called again until it ended; the moment of retirement is that of the first call. Returns the state that
    was reached. Raises :class:`EnvironmentRefused`, :class:`NeedsAttention` or :class:`UnknownState`.
    """
    found = parts.journal.required(uuid)
    require_retirable(found)
    spec = read(found.spec)
    parts.before_letting_go(uuid)
    writer = parts.journal.writer_of(found).retire(parts.retention if found.durable else None)
    return _let_go(parts, spec, writer, "retire", by_verb=False)


def require_retirable(subject: SubjectRow) -> None:
    """Raise :class:`EnvironmentRefused` for what cannot be retired, because it was never ready or is on its way out."""
    if subject.state not in (State.READY, State.RETIRING):
        raise EnvironmentRefused(
            Refusal.NOT_READY,
            f"it is {subject.state}",
            where=subject.uuid,
            hint="`tenantry env show` says what is known of it; one that was never ready is abandoned and reclaimed",
        )


def run(parts: Parts, verb: Verb, uuid: str) -> State:
    """Give `verb` on a subject; the state that was reached.

    A verb outside its condition is refused with one of the words of :class:`Refusal`, before anything was changed.
    Data whose retention still runs stays, whichever verb it is.
    """
    known, spec = look(parts, uuid)
    word = refusal(verb, known)
    if word is not None:
        raise EnvironmentRefused(word, f"{verb} does not fit: the subject is {known.subject.state}", where=uuid)
    parts.before_letting_go(uuid)
    state = State.RETIRING if known.subject.is_retained(known.now) else State.RECLAIMING
    writer = parts.journal.writer_of(known.subject).fence(state, known.effects)
    for effect in known.effects:
        if effect.outcome is None:
            # Whoever holds it is fenced now and can never say what became of it.
            writer.conclude(effect.id, Outcome.LOST, word=Refusal.FENCED)
    return _let_go(parts, spec, writer, verb.value, by_verb=True)


def look(parts: Parts, uuid: str) -> tuple[Known, Specification]:
    """What is known of a subject, with a look at its provider; changes nothing."""
    found = parts.journal.required(uuid)
    spec = read(found.spec)
    # Before the observations: what is journalled as made, and then not seen, is missing. The other way round, it
    # may have been made in between.
    effects = parts.journal.effects(uuid)
    seen = ((item.driver.kind, parts.perform.look(item)) for item in resources(parts, spec, LETTING_GO))
    absent = frozenset(kind for kind, observation in seen if isinstance(observation, Absent))
    return Known(found, effects, absent, parts.clock.now()), spec


def _let_go(parts: Parts, spec: Specification, writer: Writer, job: str, *, by_verb: bool) -> State:
    subject = parts.journal.required(spec.uuid)
    keeps_data = subject.is_retained(parts.clock.now())
    kinds = tuple(kind for kind in LETTING_GO if not (keeps_data and kind in DATA))
    everything = resources(parts, spec, kinds)
    routes = tuple(item for item in everything if item.driver.kind is Kind.ROUTE)
    for group in (routes, tuple(item for item in everything if item not in routes)):
        parts.perform.remove(Held(parts.journal, writer, by_verb), group)
    _prove_absent(parts, writer, everything)
    reached = State.RETAINED if keeps_data else State.TOMBSTONED
    if reached is State.TOMBSTONED:
        parts.before_tombstone(spec.uuid)
    writer.move(reached).receipt(job, "done", reached.value)
    return reached


def _prove_absent(parts: Parts, writer: Writer, everything: Sequence[Resource]) -> None:
    """Wait for what may still be under way, then raise unless everything is seen to be absent."""
    parts.clock.sleep(max((resource.driver.settle_seconds for resource in everything), default=0))
    effects = parts.journal.effects(writer.uuid)
    for resource in everything:
        observation = parts.perform.look(resource)
        if isinstance(observation, Unknown):
            raise unobserved(writer, resource, observation)
        if not _is_absent(resource, observation, effects):
            raise stopped(writer, resource, Attention.STILL_PRESENT, "it is there although it was deleted")


def _is_absent(resource: Resource, observation: Observation, effects: Sequence[EffectRow]) -> bool:
    """Whether nothing of ours is there; a name that we never got, because it was somebody else's, is not ours."""
    if isinstance(observation, Present):
        made = made_by(resource, effects)
        return made is None and not is_ours(observation, made)
    return isinstance(observation, Absent)
