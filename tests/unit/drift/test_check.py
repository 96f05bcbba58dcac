"""One check from one status: what is asked, what is refused, and since when."""

from __future__ import annotations

from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest

from engine.drift.check import Checker, Look
from engine.drift.expected import Phases, expected_state
from engine.drift.question import PART
from engine.drift.record import first_seen, last_check, record_file, remember
from engine.drift.repair import Repair
from engine.drift.surroundings import Moments
from engine.errors import AheadOfHead, NotProvisioned, ProbeFailed, UnknownState
from engine.hosts.status import Marker, MarkerState, Status
from engine.releases.version import Version
from engine.updater.workspace import Workspace
from tests.unit.drift.answers import as_expected
from tests.unit.updater.statuses import status

HEAD = "2026.10.23"


class OneProbe:
    """A session that may be asked once, and remembers what for."""

    def __init__(self, answer: Status) -> None:
        self.answer = answer
        self.asked: dict[str, Any] | None = None

    def probe(self, extra: Any) -> Status:
        assert self.asked is None, "one round trip"
        (part,) = extra.parts
        self.asked = part.parameters
        return self.answer


def raw(workspace: Workspace, version: str) -> dict[str, Any]:
    """What the host's script would print of a tenant that is as `version` expects."""
    maple = workspace.fleet.tenants["maple"]
    state = expected_state(workspace, Phases.load(workspace.fleet.root), maple, Version.parse(version))
    found = asdict(as_expected(state))
    return {
        "places": {path: {k: v for k, v in place.items() if v} for path, place in found["places"].items()},
        "values": {path: {"found": values["values"]} for path, values in found["values"].items()},
        "groups": found["groups"],
        "packages": found["packages"],
        "downgraded": {},
        "units": {
            unit: {"LoadState": state["load"], "ActiveState": state["active"], "UnitFileState": state["enabled"]}
            for unit, state in found["units"].items()
        },
        "drop_ins": [],
        "failed": [],
        "process": {"started": 100.0, "changed": {}},
    }


def answer(workspace: Workspace, version: str, facts: Any = None) -> Status:
    applied = {name: digest for name, digest in workspace.digests.items() if name <= version}
    return status(
        marker=Marker(MarkerState.PRESENT, Version.parse(version)),
        applied=applied,
        clock=workspace.clock.now().timestamp(),
        models={"chat": "m"},
        routes={"page": 200},
        facts={PART: facts or raw(workspace, version)},
    )


def checked(workspace: Workspace, found: Status) -> Any:
    session: Any = OneProbe(found)
    return Checker.of(workspace).check(workspace.fleet.tenants["maple"], session)


@pytest.mark.parametrize("version", ["2026.10.22", "2026.10.22.2", HEAD])
def test_a_tenant_as_its_version_wants_it_is_clean(workspace: Workspace, version: str):
    drift = checked(workspace, answer(workspace, version))
    assert drift.differences == () and drift.is_clean
    assert drift.summary.endswith(" checked, 0 differ, 0 unknown")


def test_the_one_question_covers_every_version(workspace: Workspace):
    session: Any = OneProbe(answer(workspace, "2026.10.22"))
    Checker.of(workspace).look(workspace.fleet.tenants["maple"], session)
    assert session.asked["places"] == {
        "/srv": [],
        "/opt/current": [],
        "/etc/greeting": [],
        "/etc/old/one": [],
        "/etc/listings": ["homes"],
        "/opt/current/.tenantry-complete": [],
        "/opt/forms/server.py": [],
        "/etc/old": [],
        "/srv/SOUL.md": [],
        "/srv/config.yaml": [],
    }
    assert session.asked["values"] == {"/srv/config.yaml": ["routing.only"]}
    assert set(session.asked["units"]) == {"proxy.service", "forms.service", "gateway.service"}
    assert session.asked["process"]["paths"] == ["/opt/current", "/opt/current/.tenantry-complete"]


def test_a_difference_is_dated_by_the_record_of_the_checks_before(workspace: Workspace):
    facts = raw(workspace, HEAD)
    facts["places"]["/etc/greeting"]["mode"] = "0666"
    first = checked(workspace, answer(workspace, HEAD, facts))
    ((sighting),) = first.sightings
    assert (sighting.difference.key, sighting.since) == ("file:/etc/greeting", first.at)
    earlier = replace(first, sightings=(replace(sighting, since="2026-11-01T00:00:00Z"),))
    remember(earlier, record_file(workspace.state_directory, workspace.fleet.tenants["maple"].subject))
    (again,) = checked(workspace, answer(workspace, HEAD, facts)).sightings
    assert again.since == "2026-11-01T00:00:00Z"


def test_what_a_repair_has_proven_right_is_no_longer_on_the_record(workspace: Workspace):
    maple, odd = workspace.fleet.tenants["maple"], "/etc/systemd/system/forms.service.d/odd.conf"
    facts = {**raw(workspace, HEAD), "drop_ins": [odd]}
    mended = answer(workspace, HEAD, facts)
    broken = {**facts, "places": {**facts["places"], "/etc/greeting": {"kind": "absent"}}}
    before = replace(mended, facts={PART: broken}, routes={"page": 502})
    record = record_file(workspace.state_directory, maple.subject)
    remember(checked(workspace, before), record)
    assert set(first_seen(record)) == {"file:/etc/greeting", "route:page", f"drop-in:{odd}"}
    asking: Any = OneProbe(before)
    repair = Repair(Checker.of(workspace))
    assert repair.decide(maple, asking)
    converge: Any = SimpleNamespace(job=SimpleNamespace(tenant=maple), session=OneProbe(mended))
    repair.prove(converge, Version.parse(HEAD))
    assert set(first_seen(record)) == {f"drop-in:{odd}"}
    found = last_check(record)
    assert found and found[1] == 1


def test_an_answer_that_leaves_something_out_is_no_answer(workspace: Workspace):
    facts = raw(workspace, HEAD)
    del facts["places"]["/etc/greeting"]
    with pytest.raises(ProbeFailed, match="says nothing of '/etc/greeting'"):
        checked(workspace, answer(workspace, HEAD, facts))


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"marker": Marker(MarkerState.PRESENT, Version.parse("2027.1.1"))}, AheadOfHead),
        ({"marker": Marker(MarkerState.UNREADABLE, problem="empty")}, UnknownState),
        ({"marker": Marker(MarkerState.ABSENT), "receipts": {}}, NotProvisioned),
        ({"applied": {"not a version": "x"}}, UnknownState),
        ({"facts": {PART: {}}}, ProbeFailed),
        ({"facts": {PART: {"places": {"/x": {"kind": "strange"}}}}}, ProbeFailed),
        ({"facts": {PART: []}}, ProbeFailed),
    ],
)
def test_what_has_no_meaning_is_an_error_and_never_clean(workspace: Workspace, change: dict[str, Any], error: type):
    look = Look(replace(answer(workspace, HEAD), **change), Moments(0, 1e12))
    with pytest.raises(error):
        Checker.of(workspace).compare(workspace.fleet.tenants["maple"], look)
