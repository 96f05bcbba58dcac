"""Lint finds what would surprise a tenant; what it passes, deduplication cannot change."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from engine.releases.lint import Rule, lint
from engine.releases.model import Manifest, Release, StepInfo
from engine.releases.plan import PlannedStep, make_plan, why_not
from engine.releases.version import Version
from tests.unit.fleets import entry, make_catalog, make_manifest, make_release, make_step
from tests.unit.releases.manifests import ROLES, TRADES, catalogs, final_writers, manifests

THOROUGH = settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much])

CATALOG = make_catalog(
    make_step("forms", writes=["unit:forms"]),
    make_step("guides", writes=["file:/guides"]),
    make_step("motto", writes=["file:/motto", "file:/guides"]),
    make_step("runtime", writes=["link:/opt"], takes=["version"]),
)


def rules(*releases: Release) -> list[Rule]:
    return [finding.rule for finding in lint(make_manifest(*releases), CATALOG)]


def test_a_sound_manifest_has_no_findings() -> None:
    assert not rules(
        make_release("2026.10.1", "forms", "guides", note="Forms are here."),
        make_release("2026.10.2", "forms", entry("runtime", version="1")),
        make_release("2026.10.3", "guides", entry("runtime", version="2"), "motto"),
    )


def test_an_unknown_step_is_named_with_its_place() -> None:
    release = make_release("2026.10.1", dataclasses.replace(entry("gone"), where="releases.yaml:7"))
    (finding,) = lint(make_manifest(release), CATALOG)
    assert (finding.where, finding.rule) == ("releases.yaml:7", Rule.UNKNOWN_STEP)
    assert finding.message == (
        "release 2026.10.1 names the unknown step 'gone'; known steps: forms, guides, motto, runtime"
    )


def test_arguments_that_a_step_does_not_take() -> None:
    (finding,) = lint(make_manifest(make_release("2026.10.1", entry("forms", port=1))), CATALOG)
    assert finding.rule is Rule.ARGUMENTS
    assert finding.message == "release 2026.10.1, step forms: takes no argument 'port'"


def test_the_same_entry_twice_in_a_release() -> None:
    assert rules(make_release("2026.10.1", "forms", "forms")) == [Rule.REPEATED_IN_RELEASE]


def test_a_repeated_entry_with_another_writer_between() -> None:
    manifest = make_manifest(
        make_release("2026.10.1", "guides"),
        make_release("2026.10.2", "motto"),
        make_release("2026.10.3", "guides"),
    )
    (finding,) = lint(manifest, CATALOG)
    assert finding.rule is Rule.ORDER_LOST
    assert finding.message == (
        "guides of 2026.10.3 runs at its first place in 2026.10.1, but motto of 2026.10.2 also writes "
        "file:/guides: give the later entry arguments of its own"
    )


def test_the_same_step_with_other_arguments_is_another_writer() -> None:
    old, new = entry("runtime", version="1"), entry("runtime", version="2")
    assert rules(make_release("2026.10.1", old), make_release("2026.10.2", new), make_release("2026.10.3", old)) == [
        Rule.ORDER_LOST
    ]


def test_writers_that_no_tenant_runs_together_do_not_conflict() -> None:
    catalog = make_catalog(
        make_step("homes", writes=["file:/x"], trades=frozenset({"real-estate"})),
        make_step("bread", writes=["file:/x"], trades=frozenset({"bakery"})),
    )
    manifest = make_manifest(
        make_release("2026.10.1", "homes"),
        make_release("2026.10.2", "bread"),
        make_release("2026.10.3", "homes"),
    )
    assert not lint(manifest, catalog)


@pytest.mark.parametrize("note", ["two\nlines", "a\x1b[2J", "x" * 481, "😀" * 241, "a\u2028b"])
def test_owner_notes_that_cannot_be_sent(note: str) -> None:
    assert rules(make_release("2026.10.1", note=note)) == [Rule.OWNER_NOTE]


def test_an_owner_note_at_the_limit() -> None:
    assert not rules(make_release("2026.10.1", note="😀" * 240))


def test_every_finding_is_reported() -> None:
    releases = make_release("2026.10.1", "gone", "forms", note="a\nb"), make_release("2026.10.2", "lost")
    assert rules(*releases) == [Rule.OWNER_NOTE, Rule.UNKNOWN_STEP, Rule.UNKNOWN_STEP]


def sequences(
    manifest: Manifest, catalog: dict[str, StepInfo], marker: Version | None, trade: str, role: str
) -> tuple[object, object]:
    """Where the deduplicated and the full sequence of pending steps end."""
    plan = make_plan(manifest, catalog, marker=marker, trade=trade, role=role)
    full = [step for release in plan.pending for step in release.steps if not why_not(catalog[step.name], trade, role)]
    return final_writers((step.entry for step in plan.steps), catalog), final_writers(full, catalog)


@THOROUGH
@given(manifests(), catalogs(), st.sampled_from(TRADES), st.sampled_from(ROLES), st.integers(0, 6))
def test_where_lint_passes_the_deduplicated_sequence_ends_where_the_full_one_ends(
    manifest: Manifest, catalog: dict[str, StepInfo], trade: str, role: str, day: int
) -> None:
    assume(not lint(manifest, catalog))
    marker = Version.parse(f"2026.10.{day}") if day else None
    deduplicated, full = sequences(manifest, catalog, marker, trade, role)
    assert deduplicated == full


@THOROUGH
@given(manifests(), catalogs(), st.sampled_from(TRADES), st.sampled_from(ROLES))
def test_a_fresh_and_a_long_lived_tenant_end_equal_where_lint_passes(
    manifest: Manifest, catalog: dict[str, StepInfo], trade: str, role: str
) -> None:
    """The long-lived tenant met every release alone, as it was published."""
    assume(not lint(manifest, catalog))
    fresh = make_plan(manifest, catalog, marker=None, trade=trade, role=role).steps
    lived: list[PlannedStep] = []
    marker: Version | None = None
    for release in manifest:
        published = make_manifest(*(known for known in manifest if known.version <= release.version))
        lived += make_plan(published, catalog, marker=marker, trade=trade, role=role).steps
        marker = release.version
    assert final_writers((step.entry for step in fresh), catalog) == final_writers(
        (step.entry for step in lived), catalog
    )


def test_lint_is_needed_for_that() -> None:
    manifest = make_manifest(
        make_release("2026.10.1", "guides"),
        make_release("2026.10.2", "motto"),
        make_release("2026.10.3", "guides"),
    )
    deduplicated, full = sequences(manifest, CATALOG, None, "bakery", "client")
    assert deduplicated != full
