"""The 21 releases one by one: fresh and walked tenants end equal, steps may run twice, every version goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from engine.releases.model import Release
from engine.updater.fleet import ask_many
from engine.updater.verify import Verification, verify
from tests.lab.manifest.trees import Tree, compare, lines
from tests.lab.manifest.walk import QUICK_STARTS, RELEASES, SLUG, START_POINTS, Walk, parked_name
from tests.lab.reference_fleet import ReferenceFleet

HEAD = str(RELEASES[-1].version)
AT_ONCE = 7

PACKAGES = "dpkg-query --show --showformat='${Package} ${Version} ${db:Status-Abbrev}\\n'"
# What Debian does once a day may be going on in one of the two.
UNITS = """
systemctl list-unit-files --no-legend --plain
systemctl list-units --no-legend --plain --type=service,timer 'tenant-*' 'caddy*' 'apt-*' 'logrotate*' |
    tr --squeeze-repeats ' ' | cut --delimiter ' ' --fields 1-4 |
    sed --regexp-extended '/^(apt-|logrotate).*service loaded (de)?activating /d; s/(timer .*) running$/\\1 waiting/'
"""


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: str(release.version))
def test_a_second_run_by_force_leaves_the_same_result(walk: Walk, release: Release) -> None:
    changed = walk.changed_by_second_run[str(release.version)]
    # What the forced run promised: a restart that the next converge carries out.
    changed.pop("var/lib/tenantry/owed.json", None)
    assert list(lines(changed)) == []


def test_each_release_runs_its_own_steps_only(walk: Walk) -> None:
    assert walk.steps == {str(release.version): tuple(str(entry) for entry in release.steps) for release in RELEASES}


def test_a_tenant_that_was_left_alone_shows_no_drift_at_any_version(walk: Walk) -> None:
    assert walk.drift == {str(release.version): [] for release in RELEASES}


def test_a_fresh_tenant_and_a_walked_one_are_equal_file_by_file(walk: Walk) -> None:
    assert list(lines(walk.different_from_fresh)) == []
    assert walk.compared > 10_000


@pytest.mark.parametrize("question", [PACKAGES, UNITS], ids=["packages", "units"])
def test_a_fresh_tenant_and_a_walked_one_say_the_same(walk: Walk, question: str) -> None:
    assert walk.walked.run(SLUG, question).splitlines() == walk.fresh.run(SLUG, question).splitlines()


def test_both_pass_the_acceptance_check(walk: Walk) -> None:
    assert [passes(fleet, SLUG) for fleet in (walk.walked, walk.fresh)] == [True, True]


def test_going_on_works_from_version_zero_around_upgrades_and_before_the_head(walk: Walk) -> None:
    go_on_and_compare(walk, QUICK_STARTS)


@pytest.mark.soak
@pytest.mark.parametrize("starts", [START_POINTS[i : i + AT_ONCE] for i in range(0, len(START_POINTS), AT_ONCE)])
def test_going_on_works_from_every_version(walk: Walk, starts: Sequence[int]) -> None:
    go_on_and_compare(walk, starts)


def go_on_and_compare(walk: Walk, starts: Sequence[int]) -> None:
    walk.walked.release()
    outcomes = walk.go_on(starts)
    fresh = Tree.of(walk.fresh.lab, SLUG)
    found: dict[str, object] = {}
    for number in starts:
        name, tree = parked_name(number), Tree.of(walk.walked.lab, parked_name(number))
        assert said(outcomes[name]) == (None, str(RELEASES[number - 1].version) if number else None, HEAD)
        found[name] = list(lines(compare(tree, fresh)))
        walk.walked.lab.destroy([name])
    assert found == {parked_name(number): [] for number in starts}


def said(outcome: Mapping[str, object]) -> tuple[object, object, object]:
    return outcome["error"], outcome["from_version"], outcome["to_version"]


def passes(fleet: ReferenceFleet, slug: str) -> bool:
    workspace = fleet.workspace
    (found,) = ask_many(
        workspace, [workspace.fleet.tenants[slug]], lambda tenant, session: verify(workspace, tenant, session.probe())
    )
    return isinstance(found, Verification) and found.is_good
