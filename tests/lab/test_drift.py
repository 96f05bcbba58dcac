"""Drift on a real host at the head: clean, then a change of every declared thing, named, repaired, clean again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.drift.check import check_many, remember_all
from engine.drift.expected import Expected, OwnerKind, Phases, expected_state
from engine.drift.report import Drift
from engine.provision.installer import provision_many
from engine.steps.step import PatchStep
from engine.updater.fleet import ask_many
from engine.updater.verify import verify
from tests.lab.drift_plants import plants
from tests.lab.manifest.walk import Command
from tests.lab.reference_fleet import ReferenceFleet, change_yaml

SLUG = "maple"
GATEWAY = "tenant-gateway.service"
DROP_IN = "/etc/systemd/system/tenant-forms.service.d/odd.conf"
SKILLS = "/srv/tenant/skills/real-estate"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReferenceFleet]:
    """One tenant at the head; packages may be finished, because that is how a broken one is planted."""
    # A test restarts more often than systemd allows in a minute.
    fleet = ReferenceFleet.create(
        tmp_path_factory.mktemp("drift") / "fleet",
        provision={"poll_seconds": 0.2, "polls": 3000, "repair_packages": True},
        liveness={"steady_seconds": 0.5, "poll_seconds": 0.2},
    )
    change_yaml(fleet.root / "inventory/tenants.yaml", lambda found: {"tenants": {SLUG: found["tenants"][SLUG]}})
    try:
        workspace = fleet.workspace
        (outcome,) = provision_many(workspace, list(workspace.fleet.tenants.values()))
        assert outcome.error is None, outcome.error
        yield fleet
    finally:
        fleet.lab.destroy()


def drift(fleet: ReferenceFleet) -> Drift:
    workspace = fleet.workspace
    (found,) = check_many(workspace, [workspace.fleet.tenants[SLUG]])
    assert isinstance(found, Drift), found
    return found


def said(found: Drift) -> dict[str, tuple[str, str]]:
    return {item.key: (item.expected, item.found) for item in found.differences}


def expected(fleet: ReferenceFleet) -> dict[str, Expected]:
    workspace = fleet.workspace
    tenant = workspace.fleet.tenants[SLUG]
    return dict(expected_state(workspace, Phases.load(fleet.root), tenant, workspace.manifest.head))


def repair(fleet: ReferenceFleet) -> dict[str, object]:
    outcome = Command(fleet, "converge", SLUG, "--repair").outcomes()[SLUG]
    assert outcome["error"] is None, outcome["error"]
    return outcome


def test_a_tenant_at_the_head_is_clean_and_a_repair_has_nothing_to_do(fleet: ReferenceFleet) -> None:
    assert said(drift(fleet)) == {}
    assert repair(fleet)["result"] == "unchanged"


def test_a_change_of_every_declared_thing_is_named_and_put_back(fleet: ReferenceFleet) -> None:
    workspace, wanted = fleet.workspace, expected(fleet)
    for command in plants(wanted, workspace.fleet.settings):
        fleet.run(SLUG, command)
    found = said(drift(fleet))
    assert set(found) == set(wanted), found
    outcome = repair(fleet)
    assert said(drift(fleet)) == {}
    owners = [item.owner.name for item in wanted.values() if item.owner.kind is OwnerKind.STEP]
    catalog = workspace.catalog
    ran = [str(name) for name in outcome["steps"]]  # type: ignore[attr-defined]
    assert set(owners) <= set(ran)
    assert {"phase-a", "phase-b"} <= set(ran)
    patches = {name for name in ran if name in catalog and isinstance(catalog[name], PatchStep)}
    assert not patches, "patches of rendered files have nothing to put back"
    (checked,) = ask_many(
        workspace,
        [workspace.fleet.tenants[SLUG]],
        lambda tenant, session: verify(workspace, tenant, session.probe()).summary,
    )
    assert ", 0 failed," in str(checked), checked


def test_a_single_change_runs_its_own_step_alone_and_restarts_nothing(fleet: ReferenceFleet) -> None:
    fleet.run(SLUG, "chmod 0700 /usr/local/bin/tenant-settings && systemctl stop tenant-health.service")
    assert said(drift(fleet)) == {
        "file:/usr/local/bin/tenant-settings": ("mode 0755", "mode 0700"),
        "unit:tenant-health.service": ("active", "inactive"),
        "route:health": ("200", "502"),
    }
    outcome = repair(fleet)
    assert (outcome["steps"], outcome["restarted"]) == (["settings_service", "health_endpoint"], False)
    assert said(drift(fleet)) == {}


def test_what_nobody_declares_is_found_and_left_to_a_person(fleet: ReferenceFleet) -> None:
    fleet.run(SLUG, f"mkdir -p {DROP_IN.rpartition('/')[0]} && printf '[Service]\\nNice=1\\n' > {DROP_IN}")
    fleet.run(SLUG, "systemd-run --quiet --unit=odd false; apt-mark hold caddy")
    try:
        found = drift(fleet)
        assert set(said(found)) == {f"drop-in:{DROP_IN}", "failed:odd.service", "held:caddy"}
        workspace = fleet.workspace
        assert remember_all(workspace, [(workspace.fleet.tenants[SLUG], found)]) == []
        assert [item.since for item in drift(fleet).sightings] == [item.since for item in found.sightings]
        outcome = repair(fleet)
        assert outcome["result"] == "unchanged"
        assert DROP_IN in str(outcome["messages"])
    finally:
        fleet.run(
            SLUG, f"rm -r {DROP_IN.rpartition('/')[0]}; systemctl reset-failed odd.service; apt-mark unhold caddy"
        )
    assert said(drift(fleet)) == {}


def test_a_process_older_than_its_files_is_restarted(fleet: ReferenceFleet) -> None:
    fleet.run(SLUG, "touch --no-dereference /opt/runtime/current")
    assert said(drift(fleet)) == {f"process:{GATEWAY}": ("began after its files", "older than /opt/runtime/current")}
    outcome = repair(fleet)
    assert (outcome["steps"], outcome["restarted"]) == ([], True)
    assert said(drift(fleet)) == {}


def test_a_changed_trade_shows_the_steps_that_it_lacks(fleet: ReferenceFleet) -> None:
    def trade(name: str) -> None:
        def change(found: dict[str, dict[str, dict[str, object]]]) -> dict[str, object]:
            found["tenants"][SLUG]["trade"] = name
            return found

        change_yaml(fleet.root / "inventory/tenants.yaml", change)

    trade("bakery")
    fleet.run(SLUG, f"rm -r {SKILLS} /srv/tenant/guides/viewings.md")
    # The personality speaks of the trade.
    (outcome,) = fleet.converge(SLUG)
    assert outcome.error is None, outcome.error
    assert said(drift(fleet)) == {}
    trade("real-estate")
    assert set(said(drift(fleet))) == {
        "file:/srv/tenant/guides/viewings.md",
        f"file:{SKILLS}/listing-text/SKILL.md",
        f"file:{SKILLS}/viewing-plan/SKILL.md",
        "file:/srv/tenant/home/SOUL.md",
    }
    assert repair(fleet)["steps"] == ["real_estate_skills", "guides"]
    assert said(drift(fleet)) == {}


def test_what_cannot_be_asked_is_unknown_and_not_repaired(fleet: ReferenceFleet) -> None:
    fleet.run(SLUG, "mv /usr/bin/dpkg-query /usr/bin/dpkg-query.away")
    try:
        states = {item.key: item.state.value for item in drift(fleet).differences}
        packages = {key for key in expected(fleet) if key.startswith("package:")}
        assert states == dict.fromkeys(packages | {"packages"}, "unknown")
        outcome = Command(fleet, "converge", SLUG, "--repair").outcomes()[SLUG]
        assert (outcome["result"], outcome["exit_code"]) == ("unreachable", 4)
    finally:
        fleet.run(SLUG, "mv /usr/bin/dpkg-query.away /usr/bin/dpkg-query")
    assert said(drift(fleet)) == {}
