"""Which steps run again, and which must not."""

from __future__ import annotations

import pytest

from engine.drift.compare import Difference, State
from engine.drift.expected import NOBODY, Expected, Phases, expected_state
from engine.drift.repairs import Repairs, decide
from engine.drift.report import Drift, Sighting
from engine.errors import UnknownState
from engine.releases.version import Version
from engine.updater.events import Phase
from engine.updater.workspace import Workspace, open_workspace

NOW = "2026-11-29T21:00:00Z"


def state_at(workspace: Workspace, version: str) -> dict[str, Expected]:
    maple = workspace.fleet.tenants["maple"]
    return dict(expected_state(workspace, Phases.load(workspace.fleet.root), maple, Version.parse(version)))


def repairs(workspace: Workspace, *keys: str, version: str = "2026.10.23", state: State = State.DIFFERS) -> Repairs:
    expected = state_at(workspace, version)
    found = [Difference(key, state, "a", "b", expected[key].owner if key in expected else NOBODY) for key in keys]
    drift = Drift("maple", Version.parse(version), 1, tuple(Sighting(item, NOW) for item in found), NOW)
    return decide(workspace, workspace.fleet.tenants["maple"], drift, expected)


def names(found: Repairs) -> list[str]:
    return [str(entry) for entry in found.steps]


def test_nothing_broken_is_nothing_to_do(workspace: Workspace):
    assert not repairs(workspace)


def test_every_step_that_writes_the_key_runs_again_in_plan_order(workspace: Workspace):
    found = repairs(workspace, "file:/etc/greeting", version="2026.10.22.2")
    assert names(found) == ["greeting", "greeting(word=hi)"]
    assert found.keys == ("file:/etc/greeting",) and not found.phases and not found.files


def test_a_later_step_whose_work_would_be_overwritten_runs_too(workspace: Workspace):
    """`greeting` also writes into /etc/old, which `cleanup` removes later."""
    assert names(repairs(workspace, "file:/etc/greeting")) == ["greeting", "greeting(word=hi)", "cleanup"]


def test_a_step_with_another_broken_key_of_its_own_runs_alone(workspace: Workspace):
    assert names(repairs(workspace, "unit:forms.service", "package:sqlite3")) == ["forms"]


def test_of_upgrades_of_one_link_only_the_last_one_runs(workspace: Workspace):
    assert names(repairs(workspace, "link:/opt/current")) == ["runtime(version=2.0)"]


def test_rendered_files_are_written_and_their_patches_do_not_run(workspace: Workspace):
    found = repairs(workspace, "file:/srv/config.yaml")
    assert (names(found), found.files) == ([], True)


def test_a_broken_value_of_a_rendered_file_runs_its_patch(workspace: Workspace):
    assert names(repairs(workspace, "value:/srv/config.yaml#routing.only")) == ["hosts"]
    assert names(repairs(workspace, "model:chat")) == ["hosts"]


def test_what_a_phase_owns_runs_the_phase(workspace: Workspace):
    found = repairs(workspace, "directory:/srv", "unit:forms.service")
    assert found.phases == {Phase.PHASE_A}
    assert found.words == ("phase-a", "forms")


def test_a_process_that_is_too_old_owes_a_restart(workspace: Workspace):
    found = repairs(workspace, "process:gateway.service")
    assert (found.restart, names(found)) == (True, [])


def test_what_nobody_owns_is_left_to_a_person(workspace: Workspace):
    found = repairs(workspace, "drop-in:/etc/systemd/system/forms.service.d/x.conf", "route:page")
    assert not found
    assert found.left == ("drop-in:/etc/systemd/system/forms.service.d/x.conf", "route:page")


def test_a_route_is_left_to_a_person_only_where_nothing_else_is_broken(workspace: Workspace):
    assert repairs(workspace, "route:page", "unit:forms.service").left == ()
    assert repairs(workspace, "route:page").left == ("route:page",)


def test_nothing_is_repaired_while_something_is_unknown(workspace: Workspace):
    with pytest.raises(UnknownState, match="not known: file:/etc/greeting"):
        repairs(workspace, "file:/etc/greeting", state=State.UNKNOWN)


def test_steps_that_a_new_trade_brings_are_what_is_missing(workspace: Workspace):
    """The same fold is asked with the tenant's trade of today."""
    root = workspace.fleet.root
    tenants = root / "inventory/tenants.yaml"
    tenants.write_text(tenants.read_text().replace("trade: bakery", "trade: real-estate"))
    changed = open_workspace(root)
    head = Version.parse("2026.10.23")
    before, after = (
        set(expected_state(one, Phases.load(root), one.fleet.tenants["harbor"], head)) for one in (workspace, changed)
    )
    assert after - before == {"file:/etc/listings"}
