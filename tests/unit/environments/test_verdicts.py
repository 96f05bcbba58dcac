"""What there is to do about one resource: every observation against everything that may be journalled."""

from __future__ import annotations

import datetime

import pytest

from engine.environments.drivers.base import KeyPair, Kind
from engine.environments.drivers.objects import Buckets
from engine.environments.drivers.objects_store import ObjectStore
from engine.environments.effects import Resource, Step, to_be_absent, to_be_present
from engine.environments.journal import Action, EffectRow, Outcome
from engine.environments.observation import Absent, Mark, Observation, Present, Unknown
from engine.environments.words import WAYS_ON, Attention

UUID = "9b1deb4d-3b7d-4bad-9bdd-2b0d7b3dcb6d"
NOW = datetime.datetime(2026, 10, 1, tzinfo=datetime.UTC)


# Nothing of it is asked: a verdict reads only of which kind it is.
DRIVER = Buckets(ObjectStore("http://127.0.0.1:9", KeyPair("nobody", b"nothing")))
RESOURCE = Resource(DRIVER, "ns-e-1-bu", "wanted", "c1")
OURS = Present("r", "wanted", Mark(UUID, "create"))
CHANGED = Present("r", "other", Mark(UUID, "create"))
LATER = Present("r", "wanted", Mark(UUID, "another"))
NOBODYS = Present("r", "wanted", None)
AWAY = Unknown("timedOut")


def journalled(create: str, delete: str = "") -> tuple[EffectRow, ...]:
    """A create and a delete with these outcomes; nothing for none, `open` for an intent without one."""
    rows = ((Action.CREATE, create), (Action.DELETE, delete))
    return tuple(
        EffectRow(
            id=action.value,
            uuid=UUID,
            epoch=1,
            action=action,
            kind=Kind.BUCKET,
            name=RESOURCE.name,
            digest="wanted",
            credential="c1",
            intended_at=NOW,
            outcome=None if said == "open" else Outcome(said),
            reference=None,
            word=None,
            ended_at=None,
        )
        for action, said in rows
        if said
    )


@pytest.mark.parametrize(
    ("create", "found", "step", "word"),
    [
        ("", Absent(), Step.CREATE, None),
        ("refused", Absent(), Step.CREATE, None),
        ("", AWAY, Step.STOP, "timedOut"),
        ("", NOBODYS, Step.STOP, "foreignResource"),
        ("", OURS, Step.STOP, "foreignResource"),
        ("done", OURS, Step.NOTHING, None),
        ("open", OURS, Step.NOTE, None),
        ("lost", OURS, Step.NOTE, None),
        ("lost", CHANGED, Step.STOP, "createOutcomeUnknown"),
        ("done", CHANGED, Step.STOP, "resourceDiffers"),
        ("done", LATER, Step.STOP, "foreignResource"),
        ("done", Absent(), Step.STOP, "resourceMissing"),
        ("open", Absent(), Step.STOP, "createOutcomeUnknown"),
        ("lost", AWAY, Step.STOP, "createOutcomeUnknown"),
        ("done", AWAY, Step.STOP, "timedOut"),
    ],
)
def test_what_is_to_be_there(create: str, found: Observation, step: Step, word: str | None) -> None:
    verdict = to_be_present(RESOURCE, journalled(create), found)
    assert (verdict.step, verdict.word) == (step, word)


@pytest.mark.parametrize(
    ("create", "delete", "found", "step", "word", "by_verb"),
    [
        ("done", "", OURS, Step.DELETE, None, Step.DELETE),
        ("done", "", CHANGED, Step.DELETE, None, Step.DELETE),
        ("open", "", OURS, Step.DELETE, None, Step.DELETE),
        ("done", "", LATER, Step.STOP, "foreignResource", Step.STOP),
        ("done", "refused", OURS, Step.STOP, "deleteFailed", Step.DELETE),
        ("done", "lost", OURS, Step.STOP, "deleteOutcomeUnknown", Step.DELETE),
        ("done", "open", OURS, Step.STOP, "deleteOutcomeUnknown", Step.DELETE),
        ("done", "", Absent(), Step.STOP, "resourceMissing", Step.NOTHING),
        ("done", "done", Absent(), Step.NOTHING, None, Step.NOTHING),
        ("done", "lost", Absent(), Step.NOTE, None, Step.NOTE),
        ("", "", Absent(), Step.NOTHING, None, Step.NOTHING),
        ("", "", NOBODYS, Step.NOTHING, None, Step.NOTHING),
        ("refused", "", NOBODYS, Step.NOTHING, None, Step.NOTHING),
        ("", "", AWAY, Step.STOP, "timedOut", Step.STOP),
        ("done", "done", AWAY, Step.STOP, "timedOut", Step.STOP),
    ],
)
def test_what_is_to_be_gone(
    create: str, delete: str, found: Observation, step: Step, word: str | None, by_verb: Step
) -> None:
    effects = journalled(create, delete)
    verdict = to_be_absent(RESOURCE, effects, found)
    assert (verdict.step, verdict.word) == (step, word)
    assert to_be_absent(RESOURCE, effects, found, by_verb=True).step is by_verb


def test_every_word_for_attention_says_what_goes_on() -> None:
    assert set(WAYS_ON) == set(Attention)
