"""What differs, what is unknown, and in which words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from engine.drift.compare import Difference, State, compare
from engine.drift.expected import Expected, Phases, expected_state
from engine.drift.found import Found, FoundPackage, FoundPlace, FoundUnit, FoundValues, Kind
from engine.hosts.status import Status
from engine.releases.version import Version
from engine.steps.expectations import Package, Unit
from engine.updater.workspace import Workspace
from tests.unit.drift.answers import as_expected
from tests.unit.updater.statuses import status

HEAD = Version.parse("2026.10.23")
CONFIG = "/srv/config.yaml"


@pytest.fixture
def expected(workspace: Workspace) -> Mapping[str, Expected]:
    return expected_state(workspace, Phases.load(workspace.fleet.root), workspace.fleet.tenants["maple"], HEAD)


@pytest.fixture
def clean(expected: Mapping[str, Expected]) -> Found:
    return as_expected(expected)


HEALTHY = status(models={"chat": "m"}, routes={"page": 200})


def differences(
    workspace: Workspace, expected: Mapping[str, Expected], found: Found, answer: Status = HEALTHY
) -> dict[str, Difference]:
    return {item.key: item for item in compare(expected, found, answer, workspace.fleet.settings)}


def test_a_tenant_that_is_as_expected_has_no_difference(workspace, expected, clean):
    assert differences(workspace, expected, clean) == {}


def test_every_place_that_is_gone_is_named_with_its_owner(workspace, expected, clean):
    gone = {path: FoundPlace(Kind.ABSENT) for path in clean.places}
    found = differences(workspace, expected, replace(clean, places=gone))
    wanted = {key for key in expected if key.split(":")[0] in ("file", "directory", "link")} - {"file:/etc/old"}
    assert set(found) == wanted
    assert (found["file:/etc/greeting"].expected, found["file:/etc/greeting"].found) == ("file", "absent")
    assert str(found["file:/etc/greeting"].owner) == "step greeting(word=hi) of 2026.10.22.2"


@pytest.mark.parametrize(
    ("changes", "expected_words", "found_words"),
    [
        ({"mode": "0666"}, "mode 0640", "mode 0666"),
        ({"mode": "640"}, None, None),
        ({"owner": "hermes"}, "owner root", "owner hermes"),
        ({"group": "7", "mode": "0600"}, "mode 0640, group root", "mode 0600, group 7"),
        ({"digest": "sha256:other"}, "content sha256:", "content sha256:other"),
        ({"kind": Kind.DIRECTORY}, "file", "directory"),
        ({"kind": Kind.LINK, "target": "/etc/passwd"}, "file", "link to /etc/passwd"),
    ],
)
def test_each_aspect_of_a_file_is_named(
    workspace, expected, clean, changes: dict[str, Any], expected_words: str | None, found_words: str | None
):
    changed = replace(clean.places[CONFIG], **changes)
    found = differences(workspace, expected, replace(clean, places={**clean.places, CONFIG: changed}))
    if expected_words is None:
        assert found == {}
        return
    item = found.pop(f"file:{CONFIG}")
    assert found == {}
    assert item.expected.startswith(expected_words) and item.found == found_words
    assert item.state is State.DIFFERS


def test_what_cannot_be_read_is_unknown_and_never_clean(workspace, expected, clean):
    dark = Found(
        places={path: FoundPlace(Kind.UNKNOWN, problem="Input/output error") for path in clean.places},
        values={path: FoundValues({}, "Input/output error") for path in clean.values},
        groups=clean.groups,
        packages=None,
        downgraded=None,
        units=None,
        drop_ins=(),
        failed=None,
        process_started=None,
        changed={},
    )
    found = differences(workspace, expected, dark, status(models={}, routes={"page": 200}))
    assert set(found) == {key for key in expected if key.split(":")[0] not in ("group", "route")}
    assert {item.state for item in found.values()} == {State.UNKNOWN}
    assert found["file:/etc/greeting"].found == "Input/output error"
    assert found["package:sqlite3"].found == "dpkg could not be asked"


def test_a_file_that_the_owner_may_edit_needs_its_fragments_alone(workspace, expected, clean):
    edited = replace(clean.places["/etc/listings"], digest="sha256:edited", mode="0777", owner="owner")
    assert differences(workspace, expected, replace(clean, places={**clean.places, "/etc/listings": edited})) == {}
    without = replace(edited, missing=("homes", "asked for by another version"))
    found = differences(workspace, expected, replace(clean, places={**clean.places, "/etc/listings": without}))
    assert found["file:/etc/listings"].expected == "holds 'homes'"


def test_what_must_not_be_there_and_is(workspace, expected, clean):
    there = {**clean.places, "/etc/old": FoundPlace(Kind.DIRECTORY, "0755", "root", "root")}
    found = differences(workspace, expected, replace(clean, places=there))
    assert [(item.key, item.expected, item.found) for item in found.values()] == [
        ("file:/etc/old", "absent", "directory")
    ]


@pytest.mark.parametrize(
    ("unit", "words"),
    [
        (FoundUnit("loaded", "failed", "enabled"), ("active", "failed")),
        (FoundUnit("loaded", "active", "disabled"), ("enabled", "disabled")),
        (FoundUnit("masked", "inactive", "masked"), ("active, enabled", "inactive, masked")),
        (FoundUnit("not-found", "inactive", ""), ("active, enabled", "absent")),
        (FoundUnit("loaded", "active", "static"), None),
    ],
)
def test_the_states_of_a_unit(workspace, expected, clean, unit: FoundUnit, words: tuple[str, str] | None):
    found = differences(workspace, expected, replace(clean, units={**clean.units, "forms.service": unit}))
    assert [(item.expected, item.found) for item in found.values()] == ([words] if words else [])


def test_a_unit_that_must_not_run(workspace, expected, clean):
    owner = expected["unit:forms.service"].owner
    wanted = {"unit:forms.service": Expected(Unit("forms.service", active=False, enabled=False), owner)}
    found = differences(workspace, wanted, clean)
    assert found["unit:forms.service"].expected == "inactive, disabled"


@pytest.mark.parametrize(
    ("version", "package", "words"),
    [
        (None, None, ("installed", "absent")),
        (None, FoundPackage("deinstall", "config-files", "1.0"), ("installed", "config-files")),
        ("2.0", FoundPackage("install", "installed", "1.9"), ("installed 2.0", "installed 1.9")),
        ("2.0", FoundPackage("install", "installed", "2.0"), None),
        (None, FoundPackage("install", "installed", "9"), None),
    ],
)
def test_packages(workspace, expected, clean, version, package, words):
    wanted = {"package:sqlite3": Expected(Package("sqlite3", version), expected["package:sqlite3"].owner)}
    found = differences(workspace, wanted, replace(clean, packages={"sqlite3": package} if package else {}))
    assert [(item.expected, item.found) for item in found.values()] == ([words] if words else [])


def test_values_models_routes_and_groups(workspace, expected, clean):
    changed = replace(
        clean,
        values={CONFIG: FoundValues({"routing.only": '["a"]'})},
        groups={"readers": ("somebody",)},
    )
    found = differences(workspace, expected, changed, status(models={"chat": "other"}, routes={"page": None}))
    assert {key: (item.expected, item.found) for key, item in found.items()} == {
        f"value:{CONFIG}#routing.only": ('["a", "b"]', '["a"]'),
        "model:chat": ("m", "other"),
        "route:page": ("200", "no answer"),
        "group:readers": ("with runtime", "without runtime"),
    }
    gone = replace(clean, values={CONFIG: FoundValues({})}, groups={"readers": None})
    found = differences(workspace, expected, gone, status(models={}, routes={"page": 503}))
    assert {item.found for item in found.values()} == {"absent", "503"}
    assert {item.state for item in found.values()} == {State.DIFFERS}
