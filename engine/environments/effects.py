"""One effect on one resource: observe, commit the intent, dispatch, commit the outcome.

Nothing that was dispatched is ever dispatched again here. Where an intent stands without an outcome, only an
observation can say what became of it; where that cannot, the subject needs attention.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from engine.environments.drivers.base import CreateRequest, Driver
from engine.environments.journal import Action, EffectRow, Intent, Journal, Outcome, Writer
from engine.environments.observation import Absent, Mark, Observation, Present, Unknown
from engine.environments.words import Attention, Noted, Refusal
from engine.errors import DispatchLost, DriverRefused, EnvironmentRefused, NeedsAttention, TenantryError, UnknownState

_HINT = "`tenantry env show` says what is known and which verb goes on"


@dataclass(frozen=True)
class Resource:
    """One resource of one subject at its provider. `credential` is the id of what requests are authorized with."""

    driver: Driver
    name: str
    digest: str
    credential: str

    def intent(self, action: Action) -> Intent:
        return Intent(action, self.driver.kind, self.name, self.digest, self.credential)


@dataclass(frozen=True)
class Held:
    """A subject that a job holds: the journal, its pen in the job's epoch, and whether one of the verbs was given."""

    journal: Journal
    writer: Writer
    by_verb: bool = False


class Performer(Protocol):
    """How a job looks and acts: each observation is a fact, each effect an operation with that as its precondition.

    The errors are those of :func:`ensure_present` and :func:`ensure_absent`.
    """

    def look(self, resource: Resource) -> Observation:
        """What the provider holds under the resource's name; nothing is changed."""

    def make(self, held: Held, resource: Resource, request: Callable[[str], CreateRequest]) -> bool:
        """Make `resource`, or find that it was made; whether it was made now. `request` is given the intent's id."""

    def remove(self, held: Held, resources: Sequence[Resource]) -> None:
        """Look at all of `resources`, and only if none is unknown delete those that are present, in that order."""


def of_kind(resource: Resource, effects: Sequence[EffectRow], action: Action) -> tuple[EffectRow, ...]:
    """Those of a subject's `effects` that are this `action` on `resource`."""
    kind = resource.driver.kind
    return tuple(effect for effect in effects if effect.kind is kind and effect.action is action)


def made_by(resource: Resource, effects: Sequence[EffectRow]) -> EffectRow | None:
    """The create that made the resource or may have; the journal allows no second one."""
    creates = of_kind(resource, effects, Action.CREATE)
    return next((effect for effect in creates if effect.outcome is not Outcome.REFUSED), None)


def is_ours(found: Present, made: EffectRow | None) -> bool:
    """Whether what was found carries the mark of `made`; anything else is foreign, whatever its name is."""
    return made is not None and found.mark == Mark(made.uuid, made.id)


class Step(StrEnum):
    """What there is to do about one resource."""

    CREATE = "create"
    DELETE = "delete"
    NOTE = "note"
    """Only the outcome of what was sent before is written."""
    NOTHING = "nothing"
    STOP = "stop"


@dataclass(frozen=True)
class Verdict:
    """The step, and for a stop its reason: a word, or that nothing could be learned."""

    step: Step
    reason: Attention | Refusal | Unknown | None = None
    message: str = ""

    @property
    def word(self) -> str | None:
        return self.reason.word if isinstance(self.reason, Unknown) else self.reason


def to_be_present(resource: Resource, effects: Sequence[EffectRow], found: Observation) -> Verdict:
    """What there is to do if `resource` is to be there, as it was `found`."""
    made = made_by(resource, effects)
    uncertain = made is not None and made.is_uncertain
    match found:
        case Present() if made is None:
            return _stop(Refusal.FOREIGN_RESOURCE, "it is there and does not carry our mark")
        case Present() if not is_ours(found, made):
            return _stop(Attention.FOREIGN_RESOURCE, "what is there does not carry our mark")
        case Present(digest=digest) if digest != resource.digest and uncertain:
            return _stop(Attention.CREATE_OUTCOME_UNKNOWN, "it was sent, and is there only in part")
        case Present(digest=digest) if digest != resource.digest:
            return _stop(Attention.RESOURCE_DIFFERS, "it is not what its specification says")
        case Present():
            return Verdict(Step.NOTE if uncertain else Step.NOTHING)
        case Absent() if made is None:
            return Verdict(Step.CREATE)
        case Unknown() if not uncertain:
            return Verdict(Step.STOP, found)
    if uncertain:
        return _stop(Attention.CREATE_OUTCOME_UNKNOWN, "it was sent, and is not seen")
    return _stop(Attention.RESOURCE_MISSING, "it was made, and is not there any more")


def to_be_absent(
    resource: Resource, effects: Sequence[EffectRow], found: Observation, *, by_verb: bool = False
) -> Verdict:
    """What there is to do if `resource` is to be gone, as it was `found`.

    A delete that failed or lost its outcome is sent again only `by_verb`: that is what the verbs are for. What we
    never made is not ours, whoever holds its name.
    """
    made, deletes = made_by(resource, effects), of_kind(resource, effects, Action.DELETE)
    last = deletes[-1] if deletes else None
    match found:
        case Unknown():
            return Verdict(Step.STOP, found)
        case Present() if made is not None and not is_ours(found, made):
            return _stop(Attention.FOREIGN_RESOURCE, "what is there does not carry our mark")
        case Present() if made is not None and last is not None and not by_verb and last.outcome is Outcome.REFUSED:
            return _stop(Attention.DELETE_FAILED, "an earlier delete was refused")
        case Present() if made is not None and last is not None and not by_verb and last.is_uncertain:
            return _stop(Attention.DELETE_OUTCOME_UNKNOWN, "an earlier delete has no outcome")
        case Present() if made is not None:
            return Verdict(Step.DELETE)
        case Absent() if made is not None and last is None and not by_verb:
            return _stop(Attention.RESOURCE_MISSING, "it was made, is not there, and no delete was sent")
    return Verdict(Step.NOTE if any(effect.is_uncertain for effect in deletes) else Step.NOTHING)


def ensure_present(
    writer: Writer,
    resource: Resource,
    effects: Sequence[EffectRow],
    found: Observation,
    request: Callable[[str], CreateRequest],
) -> bool:
    """Make `resource` if it was `found` absent; whether it was made now. `request` is given the intent's id.

    Raises :class:`EnvironmentRefused` for a foreign thing of that name or a provider that refused,
    :class:`UnknownState` where nothing was dispatched and the observation is unknown, and
    :class:`NeedsAttention` where only one of the verbs may go on.
    """
    verdict = to_be_present(resource, effects, found)
    match verdict.step:
        case Step.CREATE:
            _create(writer, resource, request)
        case Step.NOTE:
            made = made_by(resource, effects)
            assert isinstance(found, Present) and made is not None
            writer.conclude(made.id, Outcome.DONE, reference=found.reference, word=Noted.PRESENT)
        case Step.STOP:
            raise _halted(writer, resource, verdict)
    return verdict.step is Step.CREATE


def ensure_absent(
    writer: Writer, resource: Resource, effects: Sequence[EffectRow], found: Observation, *, by_verb: bool
) -> bool:
    """Delete `resource` if it was `found` present; whether it was deleted now. Errors as :func:`ensure_present`."""
    verdict = to_be_absent(resource, effects, found, by_verb=by_verb)
    match verdict.step:
        case Step.DELETE:
            assert isinstance(found, Present)
            delete(writer, resource, found)
        case Step.NOTE:
            for effect in of_kind(resource, effects, Action.DELETE):
                if effect.is_uncertain:
                    writer.conclude(effect.id, Outcome.DONE, word=Noted.ABSENT)
        case Step.STOP:
            raise _halted(writer, resource, verdict)
    return verdict.step is Step.DELETE


def unobserved(writer: Writer, resource: Resource, found: Unknown) -> UnknownState:
    """The error for a resource of which nothing could be learned; nothing is done because of it."""
    return UnknownState(
        f"{Refusal.OBSERVATION_UNKNOWN}: {resource.driver.kind} {resource.name}: {found.word}",
        where=writer.uuid,
        hint="give the same command again when the provider answers",
    )


def delete(writer: Writer, resource: Resource, found: Present) -> None:
    """Send one delete of what was found, which is ours."""
    assert found.mark is not None
    intent = writer.intend(resource.intent(Action.DELETE))
    try:
        resource.driver.delete(resource.name, found.mark)
    except DriverRefused as error:
        writer.conclude(intent, Outcome.REFUSED, word=Attention.DELETE_FAILED)
        raise stopped(writer, resource, Attention.DELETE_FAILED, error.message) from error
    except DispatchLost as error:
        writer.conclude(intent, Outcome.LOST, word=Attention.DELETE_OUTCOME_UNKNOWN)
        raise stopped(writer, resource, Attention.DELETE_OUTCOME_UNKNOWN, error.message) from error
    writer.conclude(intent, Outcome.DONE, reference=found.reference)


def stopped(writer: Writer, resource: Resource, word: Attention, message: str) -> NeedsAttention:
    """The error for a subject that needs attention, which is recorded first."""
    writer.need_attention(word, resource.driver.kind)
    return NeedsAttention(word, f"{resource.driver.kind} {resource.name}: {message}", where=writer.uuid, hint=_HINT)


def _stop(reason: Attention | Refusal, message: str) -> Verdict:
    return Verdict(Step.STOP, reason, message)


def _halted(writer: Writer, resource: Resource, verdict: Verdict) -> TenantryError:
    """The error for a verdict to stop; a need for attention is recorded first."""
    match verdict.reason:
        case Unknown() as found:
            return unobserved(writer, resource, found)
        case Attention() as word:
            return stopped(writer, resource, word, verdict.message)
    return EnvironmentRefused(
        Refusal.FOREIGN_RESOURCE,
        f"{resource.driver.kind} {resource.name}: {verdict.message}",
        where=writer.uuid,
        hint="it is neither taken over nor deleted; whoever made it has to say what it is",
    )


def _create(writer: Writer, resource: Resource, request: Callable[[str], CreateRequest]) -> None:
    intent = writer.intend(resource.intent(Action.CREATE))
    try:
        wanted = request(intent)
    except Exception:
        # Whatever it was, nothing was sent.
        writer.conclude(intent, Outcome.REFUSED, word=Refusal.NO_REQUEST)
        raise
    try:
        found = resource.driver.create(wanted)
    except DriverRefused as error:
        writer.conclude(intent, Outcome.REFUSED, word=Refusal.PROVIDER_REFUSED)
        raise EnvironmentRefused(
            Refusal.PROVIDER_REFUSED, f"{resource.name}: {error.message}", where=writer.uuid, hint=error.hint
        ) from error
    except DispatchLost as error:
        raise _lost(writer, resource, intent, error.message) from error
    if not isinstance(found, Present) or not _is_equal(found, resource, writer.uuid, intent):
        raise _lost(writer, resource, intent, "what is there afterwards is not what was sent")
    writer.conclude(intent, Outcome.DONE, reference=found.reference)


def _is_equal(found: Present, resource: Resource, uuid: str, intent: str) -> bool:
    return (found.digest, found.mark) == (resource.digest, Mark(uuid, intent))


def _lost(writer: Writer, resource: Resource, intent: str, message: str) -> NeedsAttention:
    writer.conclude(intent, Outcome.LOST, word=Attention.CREATE_OUTCOME_UNKNOWN)
    return stopped(writer, resource, Attention.CREATE_OUTCOME_UNKNOWN, message)
