"""What a tenant should look like at a version, without any host."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.drift.expected import Expected, Owner, OwnerKind, Phases, expected_state
from engine.errors import InvalidInput
from engine.releases.digests import digest_of
from engine.releases.version import Version
from engine.steps.expectations import Absent, File, Link, Unit
from engine.updater.workspace import Workspace, open_workspace


def at(workspace: Workspace, version: str | None, slug: str = "maple") -> dict[str, Expected]:
    found = None if version is None else Version.parse(version)
    return dict(expected_state(workspace, Phases.load(workspace.fleet.root), workspace.fleet.tenants[slug], found))


def test_version_zero_has_what_the_phases_and_the_settings_say(workspace: Workspace):
    assert set(at(workspace, None)) == {
        "unit:proxy.service",
        "unit:gateway.service",
        "directory:/srv",
        "link:/opt/current",
        "file:/srv/SOUL.md",
    }


def test_the_last_writer_wins_and_is_the_owner(workspace: Workspace):
    first, second = at(workspace, "2026.10.22")["file:/etc/greeting"], at(workspace, "2026.10.22.2")
    assert first.owner == Owner(OwnerKind.STEP, "greeting", "2026.10.22")
    assert first.expectation == File("/etc/greeting", digest=digest_of(b"hello"))
    assert second["file:/etc/greeting"].expectation == File("/etc/greeting", digest=digest_of(b"hi"))
    assert second["file:/etc/greeting"].owner.name == "greeting(word=hi)"


def test_a_step_for_another_trade_expects_nothing(workspace: Workspace):
    assert "file:/etc/listings" in at(workspace, "2026.10.22")
    assert "file:/etc/listings" not in at(workspace, "2026.10.22", "harbor")


def test_a_bundles_file_is_expected_with_the_bundles_digest(workspace: Workspace):
    item = at(workspace, "2026.10.23")["file:/opt/forms/server.py"]
    assert item.expectation == File("/opt/forms/server.py", digest=digest_of(b"serve()\n"))


def test_an_upgrade_moves_the_link_and_the_stamp_behind_it(workspace: Workspace):
    state = at(workspace, "2026.10.23")
    assert state["link:/opt/current"].expectation == Link("/opt/current", "/opt/2.0")
    assert state["link:/opt/current"].owner.name == "runtime(version=2.0)"
    stamp = state["file:/opt/current/.tenantry-complete"].expectation
    assert isinstance(stamp, File) and stamp.digest == digest_of(b"2.0\n")


def test_what_a_step_removes_is_no_longer_expected_below_it_either(workspace: Workspace):
    assert "file:/etc/old/one" in at(workspace, "2026.10.22.2")
    state = at(workspace, "2026.10.23")
    assert "file:/etc/old/one" not in state
    assert state["file:/etc/old"].expectation == Absent("/etc/old")


def test_settings_count_from_their_version_on_and_a_steps_word_on_a_unit_is_newer(workspace: Workspace):
    assert "route:page" not in at(workspace, "2026.10.22")
    assert "route:page" in at(workspace, "2026.10.22.2")
    assert "unit:forms.service" not in at(workspace, "2026.10.22.2")
    assert at(workspace, "2026.10.23")["unit:forms.service"].expectation == Unit("forms.service")


def test_a_rendered_file_is_its_templates_folded_through_the_edits(workspace: Workspace):
    state = at(workspace, "2026.10.23")
    assert state["file:/srv/config.yaml"].owner == Owner(OwnerKind.TEMPLATE, "config.yaml.j2", "2026.10.22.2")
    text = b"model: {default: m}\nrouting: {only: [a, b]}\n"
    assert state["file:/srv/config.yaml"].expectation == File("/srv/config.yaml", mode="0640", digest=digest_of(text))
    assert state["value:/srv/config.yaml#routing.only"].owner.name == "hosts"


def test_a_step_may_not_expect_what_it_does_not_write(workspace: Workspace):
    path = workspace.fleet.root / "deploys/steps/forms.py"
    path.write_text(path.read_text().replace('"unit:forms.service", ', ""))
    with pytest.raises(InvalidInput, match=r"expects unit:forms\.service, which is not among what it writes"):
        at(open_workspace(workspace.fleet.root), "2026.10.23")


def test_an_error_in_the_fleets_code_names_the_step(workspace: Workspace):
    path = workspace.fleet.root / "deploys/steps/greeting.py"
    path.write_text(path.read_text().replace('place.arguments["word"]', 'place.arguments["wrod"]'))
    with pytest.raises(InvalidInput, match="`expects` of step greeting raised KeyError"):
        at(open_workspace(workspace.fleet.root), "2026.10.23")


def test_a_name_that_the_bundle_lacks_is_named(workspace: Workspace, tmp_path: Path):
    path = workspace.fleet.root / "deploys/steps/forms.py"
    path.write_text(path.read_text().replace(': "server.py"', ': "servr.py"'))
    with pytest.raises(InvalidInput, match="the bundle has no such file"):
        at(open_workspace(workspace.fleet.root), "2026.10.23")
