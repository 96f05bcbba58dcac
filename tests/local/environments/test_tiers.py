"""The life of a tier beside those of its members, of which the journal lets none overlap wrongly."""

from __future__ import annotations

import datetime
import sqlite3
import uuid
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from engine.environments.conditions import Verb
from engine.environments.drivers.base import Kind
from engine.environments.journal import Database, Journal, State, database
from engine.environments.life import DATA, RETENTION, abandon
from engine.environments.names import Owner
from engine.environments.spec import MEMBER, TIER, Specification
from engine.environments.verbs import retire, run
from engine.errors import EnvironmentRefused
from engine.registry.environments_model import Lifetime
from tests.local.environments.processes import ENDED, REFUSED, at_once
from tests.local.environments.simulated import Store
from tests.local.environments.subjects import World, specification
from tests.unit import hosted
from tests.unit.updater.clocks import FakeClock

HOURS = 168


def tier_spec(found: str = hosted.TIER) -> Specification:
    return Specification(found, Owner.TIER, Lifetime.DURABLE, TIER, {"project": "shop", "tier": "common"})


def member_spec(found: str = hosted.MEMBER, tier: str = hosted.TIER) -> Specification:
    return Specification(found, Owner.ENVIRONMENT, Lifetime.DURABLE, MEMBER, {"storage": tier})


@pytest.fixture
def tier(subject: World) -> World:
    found = subject.of(tier_spec())
    found.create()
    return found


def refused(word: str) -> pytest.RaisesExc[EnvironmentRefused]:
    return pytest.RaisesExc(EnvironmentRefused, check=lambda error: error.word == word)


def kinds(store: Store, found: str) -> set[str]:
    return {key.split("/")[0] for key, thing in store.things().items() if thing["mark"]["uuid"] == found}


def is_unknown(subject: World) -> bool:
    return subject.parts.journal.subject(subject.spec.uuid) is None


def test_a_member_begins_only_while_its_tier_is_ready(subject: World, store: Store) -> None:
    tier, member = subject.of(tier_spec()), subject.of(member_spec())
    with refused("tierNotReady"):
        member.create()
    store.faults["create", Kind.KEY] = ["refused"]
    with refused("providerRefused"):
        tier.create()
    with refused("tierNotReady"):
        member.create()
    tier.create()
    retire(tier.parts, hosted.TIER)
    for later in (0, HOURS * 3600):
        subject.clock.sleep(later)
        with refused("tierNotReady"):
            member.create()
    run(tier.parts, Verb.EXPIRE_RETAINED, hosted.TIER)
    with refused("tierNotReady"):
        member.create()
    assert is_unknown(member) and store.things() == {}


def test_an_environment_is_no_tier(subject: World) -> None:
    subject.create()
    with refused("tierNotReady"):
        subject.of(member_spec(tier=subject.spec.uuid)).create()


def test_a_tier_is_not_let_go_of_while_a_member_is_left(tier: World, store: Store) -> None:
    first, second = (tier.of(member_spec(found)) for found in (hosted.MEMBER, hosted.OWN))
    first.create()
    store.faults["create", Kind.ROLE] = ["lost"]
    with pytest.raises(Exception, match="createOutcomeUnknown"):
        second.create()
    before = tier.parts.journal.required(hosted.TIER)
    with pytest.raises(EnvironmentRefused) as caught:
        retire(tier.parts, hosted.TIER)
    assert (caught.value.word, caught.value.message) == ("tierHasMembers", "tierHasMembers: 2")
    assert hosted.MEMBER not in str(caught.value)
    retire(first.parts, hosted.MEMBER)
    abandon(second.parts, hosted.OWN)
    with pytest.raises(EnvironmentRefused, match="tierHasMembers: 1"):
        retire(tier.parts, hosted.TIER)
    assert tier.parts.journal.required(hosted.TIER) == before
    run(second.parts, Verb.RECLAIM_UNJOURNALLED_CREATE, hosted.OWN)
    assert retire(tier.parts, hosted.TIER) is State.RETAINED


@pytest.mark.parametrize("verb", [Verb.RECLAIM, Verb.EXPIRE_RETAINED])
def test_no_verb_takes_a_tier_from_under_a_member(tier: World, store: Store, verb: Verb) -> None:
    """Even one whose tier was let go of before the journal knew of members."""
    tier.of(member_spec()).create()
    path = store.path.with_name("journal.db")
    until = int((tier.clock.now() - datetime.timedelta(seconds=1)).timestamp() * 1_000_000)
    with sqlite3.connect(path) as connection:
        values = {Verb.RECLAIM: ("abandoned", None), Verb.EXPIRE_RETAINED: ("retained", until)}[verb]
        connection.execute("UPDATE subject SET state = ?, retained_until = ? WHERE kind = 'tier'", values)
    connection.close()
    with refused("tierHasMembers"):
        run(tier.parts, verb, hosted.TIER)
    assert kinds(store, hosted.TIER) == {kind.value for kind in DATA}


def test_a_member_goes_at_once_and_leaves_the_tiers_data(tier: World, store: Store) -> None:
    member = tier.of(member_spec())
    member.create()
    assert retire(member.parts, hosted.MEMBER) is State.TOMBSTONED
    assert (kinds(store, hosted.MEMBER), kinds(store, hosted.TIER)) == (set(), {kind.value for kind in DATA})


@pytest.mark.parametrize("spec", [specification(lifetime=Lifetime.DURABLE), tier_spec()])
def test_data_stays_168_hours_to_the_second(subject: World, store: Store, spec: Specification) -> None:
    durable = subject.of(spec)
    durable.create()
    retired_at = durable.clock.now()
    assert retire(durable.parts, spec.uuid) is State.RETAINED
    assert datetime.timedelta(hours=HOURS) == RETENTION
    durable.clock.sleep(HOURS * 3600 - 1 - durable.clock.slept)
    assert durable.clock.now() == retired_at + datetime.timedelta(hours=167, minutes=59, seconds=59)
    with refused("retentionRunning"):
        run(durable.parts, Verb.EXPIRE_RETAINED, spec.uuid)
    assert kinds(store, spec.uuid) == {kind.value for kind in DATA}
    durable.clock.sleep(1)
    assert durable.clock.now() == retired_at + datetime.timedelta(hours=168)
    assert run(durable.parts, Verb.EXPIRE_RETAINED, spec.uuid) is State.TOMBSTONED
    assert store.things() == {}


def test_of_members_that_begin_and_a_tier_that_retires_one_side_is_refused(tmp_path: Path) -> None:
    journal = _journal(tmp_path)
    journal.begin(tier_spec().subject()).move(State.READY)
    members = [str(uuid.uuid4()) for _ in range(3)]
    codes = at_once(
        _begin_or_retire, *[(tmp_path, word) for pair in zip(members, [""] * 3, strict=True) for word in pair]
    )
    begun, retired = codes[::2], codes[1::2]
    assert {*begun, *retired} == {ENDED, REFUSED}
    recorded = [row for row in journal.subjects() if row.tier == hosted.TIER]
    assert len(recorded) == begun.count(ENDED)
    assert (journal.required(hosted.TIER).state is State.READY) == bool(recorded) == (ENDED not in retired)


def _begin_or_retire(directory: Path, member: str) -> None:
    journal = _journal(directory)
    try:
        if member:
            journal.begin(member_spec(member).subject())
        else:
            journal.writer(hosted.TIER).retire(RETENTION)
    except EnvironmentRefused:
        raise SystemExit(REFUSED) from None


def _journal(directory: Path) -> Journal:
    return Journal(Database(directory / "journal.db"), FakeClock())


def test_an_older_journal_learns_its_members_from_their_specifications(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    _older(path, "0001")
    specs = [tier_spec(), member_spec(), specification()]
    with sqlite3.connect(path) as connection:
        for spec in specs:
            connection.execute(
                "INSERT INTO subject (uuid, kind, epoch, state, spec_digest, spec, durable, created_at)"
                " VALUES (?, ?, 1, 'ready', ?, ?, 1, 0)",
                (spec.uuid, spec.subject().kind, spec.digest, spec.canonical()),
            )
    connection.close()
    journal = _journal(tmp_path)
    assert {row.uuid: row.tier for row in journal.subjects()} == {
        hosted.TIER: None,
        hosted.MEMBER: hosted.TIER,
        hosted.OWN: None,
    }
    with refused("tierHasMembers"):
        journal.writer(hosted.TIER).retire(RETENTION)


def _older(path: Path, revision: str) -> None:
    """A journal as an older engine left it."""
    engine = sa.create_engine(f"sqlite:///{path}")
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).with_name("migrations")))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    engine.dispose()
