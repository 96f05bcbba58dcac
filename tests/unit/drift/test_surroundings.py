"""What nobody declares: drop-ins, failed units, packages, clock, process, releases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.drift.compare import State
from engine.drift.expected import NOBODY, Expected
from engine.drift.found import Downgrade, FoundPackage
from engine.drift.surroundings import Moments, releases, surroundings
from engine.hosts.status import Status
from engine.releases.version import Version
from engine.steps.expectations import File, Package, Unit
from engine.updater.workspace import Workspace
from tests.unit.drift.answers import EMPTY
from tests.unit.updater.statuses import gateway_state, status

NOW = Moments(99.0, 101.0)


def around(workspace: Workspace, found=EMPTY, answer: Status | None = None, moments: Moments = NOW, expected=None):
    settings = workspace.fleet.settings
    return {
        item.key: (item.state, item.found)
        for item in surroundings(settings, expected or {}, found, answer or status(clock=100.0), moments)
    }


def test_nothing_odd_is_nothing_found(workspace: Workspace):
    assert around(workspace) == {}


def test_a_drop_in_is_unmanaged_unless_it_is_expected(workspace: Workspace):
    paths = ("/etc/systemd/system/forms.service.d/a.conf", "/etc/systemd/system/forms.service.d/b.conf")
    expected = {f"file:{paths[0]}": Expected(File(paths[0]), NOBODY)}
    assert set(around(workspace, replace(EMPTY, drop_ins=paths), expected=expected)) == {f"drop-in:{paths[1]}"}


def test_a_failed_unit_is_told_once(workspace: Workspace):
    expected = {"unit:forms.service": Expected(Unit("forms.service"), NOBODY)}
    found = replace(EMPTY, failed=("forms.service", "other.service"))
    assert set(around(workspace, found, expected=expected)) == {"failed:other.service"}


def test_packages_that_are_held_or_downgraded(workspace: Workspace):
    found = replace(
        EMPTY,
        packages={"caddy": FoundPackage("hold", "installed", "2.6"), "curl": FoundPackage("install", "installed", "7")},
        downgraded={"curl": Downgrade("8", "7", "2026-11-01 10:00:00")},
    )
    assert around(workspace, found) == {
        "held:caddy": (State.DIFFERS, "held at 2.6"),
        "downgraded:curl": (State.DIFFERS, "7 since 2026-11-01 10:00:00 (dpkg's log)"),
    }


@pytest.mark.parametrize(("version", "is_said"), [("7", False), ("8", True), (None, True)])
def test_a_lower_version_that_is_the_expected_one_is_no_downgrade(
    workspace: Workspace, version: str | None, is_said: bool
):
    expected = {"package:curl": Expected(Package("curl", version), NOBODY)}
    found = replace(EMPTY, downgraded={"curl": Downgrade("8", "7", "2026-11-01 10:00:00")})
    assert bool(around(workspace, found, expected=expected)) is is_said


def test_what_cannot_be_asked_is_unknown(workspace: Workspace):
    found = around(workspace, replace(EMPTY, packages=None, failed=None))
    assert {key: state for key, (state, _) in found.items()} == {"failed": State.UNKNOWN, "packages": State.UNKNOWN}


@pytest.mark.parametrize(
    ("clock", "words"),
    [(98.0, None), (97.1, None), (96.9, "2.1 s behind"), (103.0, None), (103.1, "2.1 s ahead"), (0.0, "99.0 s behind")],
)
def test_only_a_skew_beyond_the_time_of_the_answer_counts(workspace: Workspace, clock: float, words: str | None):
    found = around(workspace, answer=status(clock=clock))
    assert found == ({"clock": (State.DIFFERS, words)} if words else {})


@pytest.mark.parametrize(
    ("changed", "running", "words"),
    [
        ({"/opt/current": 100.9}, "1.0", None),
        ({"/opt/current": 101.1}, "1.0", "older than /opt/current"),
        ({}, "0.9", "runs 0.9"),
        ({}, None, None),
    ],
)
def test_a_process_older_than_its_files(workspace: Workspace, changed, running, words):
    found = around(
        workspace,
        replace(EMPTY, changed=changed),
        status(clock=100.0, runtime_version="1.0", gateway=gateway_state(running_version=running)),
    )
    assert found == ({"process:gateway.service": (State.DIFFERS, words)} if words else {})


def test_without_a_process_nothing_is_older(workspace: Workspace):
    assert around(workspace, replace(EMPTY, process_started=None, changed={"/opt/current": 1e9})) == {}


def test_releases_that_were_edited_or_never_applied(workspace: Workspace):
    first, second, _ = workspace.digests
    answer = status(applied={first: "sha256:old"})
    found = {item.key: item.found for item in releases(workspace, Version.parse(second), answer)}
    assert found == {f"release:{first}": "applied as sha256:old", f"release:{second}": "never applied"}
