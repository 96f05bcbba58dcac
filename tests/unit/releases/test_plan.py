"""The plan: what runs, in what order, and for everything else the reason why not."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InvalidInput
from engine.releases.model import Manifest, StepInfo
from engine.releases.plan import Plan, ReleaseState, SkipReason, all_steps, make_plan
from engine.releases.version import Version
from tests.unit.fleets import entry, make_catalog, make_manifest, make_release, make_step
from tests.unit.releases.manifests import ROLES, TRADES, catalogs, manifests

MANIFEST = make_manifest(
    make_release("2026.10.22", "forms", "guides"),
    make_release("2026.10.22.9", "skills", "forms"),
    make_release("2026.10.22.10", entry("runtime", version="0.19.0"), "guides", "alerts"),
)
CATALOG = make_catalog(
    make_step("forms", shipped="sha256:aa"),
    make_step("guides"),
    make_step("runtime", takes=["version"]),
    make_step("skills", trades=frozenset({"real-estate"})),
    make_step("alerts", roles=frozenset({"test"})),
)


def plan_at(marker: str | None, *, trade: str = "bakery", role: str = "client") -> Plan:
    version = None if marker is None else Version.parse(marker)
    return make_plan(MANIFEST, CATALOG, marker=version, trade=trade, role=role)


def test_a_fresh_tenant_runs_every_release_once_in_order() -> None:
    plan = plan_at(None, trade="real-estate", role="test")
    assert [str(step.entry) for step in plan.steps] == [
        "forms",
        "guides",
        "skills",
        "runtime(version=0.19.0)",
        "alerts",
    ]
    assert [step.position for step in plan.steps] == [0, 1, 2, 3, 4]
    assert [str(version) for version in plan.steps[0].releases] == ["2026.10.22", "2026.10.22.9"]
    assert [str(version) for version in plan.steps[1].releases] == ["2026.10.22", "2026.10.22.10"]
    assert plan.pending == MANIFEST.releases


def test_every_entry_that_does_not_run_has_its_reason() -> None:
    skipped = [(str(step.entry), str(step.release), step.reason, step.detail) for step in plan_at(None).skipped]
    assert skipped == [
        ("skills", "2026.10.22.9", SkipReason.TRADE, "only for trade real-estate, this tenant's is bakery"),
        ("forms", "2026.10.22.9", SkipReason.DUPLICATE, "runs once, in its first place in 2026.10.22"),
        ("guides", "2026.10.22.10", SkipReason.DUPLICATE, "runs once, in its first place in 2026.10.22"),
        ("alerts", "2026.10.22.10", SkipReason.ROLE, "only for role test, this tenant's is client"),
    ]


def test_a_step_that_ran_below_the_marker_runs_again_where_a_release_names_it() -> None:
    plan = plan_at("2026.10.22")
    assert [step.entry.name for step in plan.steps] == ["forms", "runtime", "guides"]


def test_every_release_has_its_reason() -> None:
    states = [(planned.state, planned.reason) for planned in plan_at("2026.10.22.9").releases]
    assert states == [
        (ReleaseState.APPLIED, "below the marker 2026.10.22.9"),
        (ReleaseState.APPLIED, "the marker stands at it"),
        (ReleaseState.PENDING, "above the marker 2026.10.22.9"),
    ]


def test_a_marker_between_releases_splits_them() -> None:
    assert [str(release.version) for release in plan_at("2026.10.22.3").pending] == [
        "2026.10.22.9",
        "2026.10.22.10",
    ]


def test_nothing_is_pending_at_the_head() -> None:
    plan = plan_at("2026.10.22.10")
    assert (plan.pending, plan.steps, plan.skipped, plan.ahead) == ((), (), (), False)


def test_a_marker_above_the_head_is_ahead_and_has_nothing_pending() -> None:
    plan = plan_at("2026.10.22.11")
    assert plan.ahead
    assert (plan.pending, plan.steps) == ((), ())


def test_the_same_name_with_other_arguments_is_another_step() -> None:
    manifest = make_manifest(
        make_release("2026.10.1", entry("runtime", version="0.18.2")),
        make_release("2026.10.2", entry("runtime", version="0.19.0")),
    )
    plan = make_plan(manifest, CATALOG, marker=None, trade="bakery", role="client")
    assert [step.entry.arguments["version"] for step in plan.steps] == ["0.18.2", "0.19.0"]


def test_an_unknown_step_is_refused_with_its_release() -> None:
    with pytest.raises(InvalidInput, match=r"release 2026\.10\.1 names the unknown step 'gone'"):
        make_plan(make_manifest(make_release("2026.10.1", "gone")), CATALOG, marker=None, trade="x", role="test")


def test_the_steps_up_to_a_version_are_those_of_a_fresh_tenant() -> None:
    steps = all_steps(MANIFEST, CATALOG, Version.parse("2026.10.22.9"), "real-estate", "client")
    assert [step.entry.name for step in steps] == ["forms", "guides", "skills"]
    head = all_steps(MANIFEST, CATALOG, MANIFEST.head, "bakery", "client")
    assert head == plan_at(None).steps


def test_the_digest_follows_what_would_run() -> None:
    assert plan_at(None).digest() == plan_at(None).digest()
    changed = {**CATALOG, "forms": make_step("forms", shipped="sha256:bb")}
    digests = {
        plan_at(None).digest(),
        plan_at(None, trade="real-estate").digest(),
        plan_at("2026.10.22").digest(),
        plan_at("2026.10.22.10").digest(),
        make_plan(MANIFEST, changed, marker=None, trade="bakery", role="client").digest(),
    }
    assert len(digests) == 5


def test_the_digest_ignores_prose() -> None:
    reworded = make_manifest(*(dataclasses.replace(release, details="new", title="new") for release in MANIFEST))
    plan = make_plan(reworded, CATALOG, marker=None, trade="bakery", role="client")
    assert plan.digest() == plan_at(None).digest()


tenants = st.tuples(st.sampled_from(TRADES), st.sampled_from(ROLES))


@given(manifests(), catalogs(), tenants, st.integers(0, 7))
def test_each_entry_is_planned_once_or_skipped_with_a_reason(
    manifest: Manifest, catalog: dict[str, StepInfo], tenant: tuple[str, str], day: int
) -> None:
    trade, role = tenant
    marker = Version.parse(f"2026.10.{day}") if day else None
    plan = make_plan(manifest, catalog, marker=marker, trade=trade, role=role)
    entries = [step.entry for step in plan.steps]
    assert len(entries) == len(set(entries))
    named = [(release.version, step) for release in plan.pending for step in release.steps]
    skipped = [(step.release, step.entry) for step in plan.skipped]
    first = [(step.releases[0], step.entry) for step in plan.steps]
    assert sorted(named, key=repr) == sorted(skipped + first, key=repr)
    assert first == [pair for pair in named if pair in first]


@given(manifests(), catalogs(), tenants)
def test_a_converged_tenant_has_nothing_pending(
    manifest: Manifest, catalog: dict[str, StepInfo], tenant: tuple[str, str]
) -> None:
    trade, role = tenant
    plan = make_plan(manifest, catalog, marker=manifest.head, trade=trade, role=role)
    assert not plan.pending
    assert not plan.steps
