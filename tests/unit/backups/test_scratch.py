"""Scratch servers: names that no tenant has, settings that tell nobody, secrets that are nobody's."""

from __future__ import annotations

import itertools
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.backups.scratch import (
    MadeUpSecrets,
    ScratchMarks,
    require_isolated,
    scratch_name,
    scratch_settings,
    scratch_tenant,
    scratch_workspace,
    unproven_channels,
)
from engine.errors import RecordFailed, Refused
from engine.registry.freeze import freeze
from engine.registry.model import Fleet
from engine.registry.safeguards import Provider, Rehearsal
from engine.registry.settings import Gateway, Notify, Settings
from engine.subject import Subject
from engine.updater.events import Event, Phase
from engine.updater.workspace import open_workspace
from tests.fleets import write_whole_fleet
from tests.unit.fleets import make_tenant

SLUG = re.compile(r"[a-z][a-z0-9-]{0,30}[a-z0-9]", re.ASCII)
SLUGS = st.from_regex(SLUG, fullmatch=True)

GATEWAY = Gateway("g.service", "127.0.0.1", 1, "/", "/s", "/d", "/c", "/h", "/l", channels=("local", "mail"))
SETTINGS = Settings(
    brand="Queva",
    gateway=GATEWAY,
    notify=Notify(target_secret="notify_url"),
    template_values={"model": "big", "port": 1},
    rehearsal=Rehearsal(local_channels=("local",), template_values={"model": "stub"}),
)


@given(st.sets(SLUGS, min_size=2, max_size=8))
def test_every_tenant_has_a_scratch_name_of_its_own(slugs: set[str]):
    names = {slug: scratch_name(slug, ()) for slug in slugs}
    assert all(SLUG.fullmatch(name) for name in names.values())
    assert all(one != other for one, other in itertools.combinations(names.values(), 2))


@pytest.mark.parametrize("slug", ["a1", "a" * 24, "a" * 25, "a" * 32, "a" * 12 + "-" * 19 + "b"])
def test_long_names_are_cut_to_a_slug(slug: str):
    assert SLUG.fullmatch(scratch_name(slug, ()))


def test_a_registered_tenant_of_that_name_is_never_the_scratch_server():
    with pytest.raises(Refused, match="scratch-maple, which is a tenant's name"):
        scratch_name("maple", {"maple", "scratch-maple"})


def test_a_scratch_tenant_has_no_owner_to_write_to_and_no_real_secret(tmp_path: Path):
    tenant = make_tenant(
        address="192.0.2.1", text_updates=True, provider=Provider("hetzner"), secrets={"key": "command:touch /tmp/no"}
    )
    fleet = Fleet(tmp_path, SETTINGS, {"maple": tenant})
    scratch = scratch_tenant(fleet, tenant)
    assert (scratch.slug, scratch.address, scratch.provider.name) == ("scratch-maple", None, "lab")
    assert (scratch.text_updates, scratch.secrets) == (False, {"key": "made-up:key"})
    value = MadeUpSecrets(tmp_path, tmp_path).resolve(scratch.secrets["key"])
    assert re.fullmatch(rb"[A-Za-z0-9_-]{32}", value)


def test_made_up_secrets_follow_nothing_else(tmp_path: Path):
    (tmp_path / "key").write_text("real")
    sources = MadeUpSecrets(tmp_path, tmp_path)
    with pytest.raises(Refused, match="does not follow"):
        sources.resolve("file:key")
    assert sources.resolve("made-up:a") == sources.resolve("made-up:a") != sources.resolve("made-up:b")


@pytest.mark.parametrize(("provider", "isolated"), [("lab", True), ("hetzner", False)])
def test_only_a_provider_that_promises_that_there_is_no_way_out_will_do(tmp_path: Path, provider: str, isolated: bool):
    workspace = open_workspace(write_whole_fleet(tmp_path))
    with nullcontext() if isolated else pytest.raises(Refused, match=f"provider {provider} cannot promise"):
        require_isolated(workspace, make_tenant(provider=Provider(provider)))


def test_a_scratch_server_is_known_by_its_mark_although_its_tenant_is_removed(tmp_path: Path):
    marks = ScratchMarks(tmp_path / "scratch")
    assert list(marks.left(make_tenant())) == []
    # As the registry has them: read-only, all the way down.
    options = freeze({"volumes": [{"name": "home", "size": 2}]})
    server = make_tenant(slug="scratch-cedar", provider=Provider("lab", options))
    marks.put(server, make_tenant(slug="cedar"))
    ((found, lock),) = marks.left(make_tenant(slug="maple"))
    assert (found.slug, found.provider, lock) == (server.slug, server.provider, Subject("scratch", "cedar"))
    marks.remove(server)
    assert list(marks.left(make_tenant())) == []


def test_a_mark_that_cannot_be_read_says_which_server_to_look_for(tmp_path: Path):
    (tmp_path / "scratch-cedar.json").write_text("{")
    with pytest.raises(RecordFailed, match="the mark of a scratch server cannot be read"):
        list(ScratchMarks(tmp_path).left(make_tenant()))


def test_the_settings_of_a_scratch_server():
    settings = scratch_settings(SETTINGS)
    assert settings.gateway and settings.gateway.channels == ("local",)
    assert settings.template_values == {"model": "stub", "port": 1}
    assert settings.notify.target_secret is None
    assert unproven_channels(SETTINGS) == ("mail",)


def test_events_of_a_scratch_server_name_its_tenant(tmp_path: Path):
    events: list[Event] = []
    workspace = open_workspace(write_whole_fleet(tmp_path), report=events.append)
    scratch = scratch_workspace(workspace, workspace.fleet.tenants.values())
    assert list(scratch.fleet.tenants) == ["scratch-maple", "scratch-harbor"]
    scratch.report(Event("scratch-maple", Phase.PROBE, "asking"))
    assert events == [Event("maple", Phase.PROBE, "asking")]
