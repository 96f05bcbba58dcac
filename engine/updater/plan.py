"""What a converge would do, told without lock or change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.hosts.session import Session
from engine.hosts.status import Answer
from engine.registry.model import Tenant
from engine.releases.plan import PlannedStep
from engine.render.compare import text_diff
from engine.steps.context import StepContext
from engine.updater.assessment import Assessment, assess
from engine.updater.owner_note import Preview, preview
from engine.updater.standing import armed_document, held_document
from engine.updater.workspace import Workspace


@dataclass(frozen=True)
class StepForecast:
    """What is known now about one pending step.

    `is_certain` is false where an earlier step of the plan would run first and may change the answer. There is no
    way back across a step that `is_irreversible` but a restore.
    """

    entry: str
    releases: tuple[str, ...]
    answer: Answer
    is_certain: bool
    is_irreversible: bool = False

    @property
    def verdict(self) -> str:
        """In words: would it run, and why."""
        words = {
            Answer.HOLDS: "would be passed over: its effect is there already",
            Answer.DOES_NOT_HOLD: "would run: its effect is not there",
            Answer.UNKNOWN: "would stop the run: its precondition is unknown",
        }[self.answer]
        return words if self.is_certain else f"{words} now; known only after the steps before it"


@dataclass(frozen=True)
class TenantPlan:
    """The plan of one tenant, with content differences where they were asked for."""

    assessment: Assessment
    steps: tuple[StepForecast, ...]
    diffs: tuple[tuple[str, ...], ...]
    note: Preview

    @property
    def has_changes(self) -> bool:
        return self.assessment.has_changes

    def document(self) -> dict[str, Any]:
        """The plan as a JSON document of the public contract."""
        assessment, owed = self.assessment, self.assessment.status.owed
        return {
            "slug": assessment.tenant.slug,
            "version": str(assessment.marker) if assessment.marker else None,
            "head": str(assessment.plan.head),
            "changes": self.has_changes,
            "digest": assessment.digest(),
            "releases": [
                {
                    "version": str(planned.release.version),
                    "title": planned.release.title,
                    "state": planned.state.value,
                    "reason": planned.reason,
                }
                for planned in assessment.plan.releases
            ],
            "steps": [
                {
                    "entry": step.entry,
                    "releases": list(step.releases),
                    "answer": step.answer.value,
                    "certain": step.is_certain,
                    "verdict": step.verdict,
                    "irreversible": step.is_irreversible,
                }
                for step in self.steps
            ],
            "skipped": [
                {
                    "entry": str(skipped.entry),
                    "release": str(skipped.release),
                    "reason": skipped.reason.value,
                    "detail": skipped.detail,
                }
                for skipped in assessment.plan.skipped
            ],
            "files": [
                {
                    "name": item.rendered.file.name,
                    "path": item.rendered.file.path,
                    "differs_in": [change.aspect.value for change in item.changes],
                }
                for item in assessment.differences
            ],
            "held": held_document(assessment.status),
            "armed": armed_document(assessment.status),
            "owed": {
                "restart": list(owed.restart),
                "reloads": list(owed.reloads),
                "switches": dict(owed.switches),
            },
            "never_applied": [str(version) for version in assessment.applied.missed],
            "removed": [str(version) for version in assessment.applied.removed],
            "owner_note": self.note.own,
            "owed_note": self.note.owed,
            "diffs": [list(diff) for diff in self.diffs],
        }


def plan_tenant(workspace: Workspace, tenant: Tenant, session: Session, *, with_diff: bool) -> TenantPlan:
    """Probe `tenant` and say what a converge would do now; raises what would refuse it."""
    assessment = assess(workspace, tenant, session.probe())
    steps = _forecast(workspace, assessment, session)
    diffs = tuple(_diffs(assessment, session)) if with_diff else ()
    return TenantPlan(assessment, steps, diffs, preview(workspace, assessment))


def _forecast(workspace: Workspace, assessment: Assessment, session: Session) -> tuple[StepForecast, ...]:
    forecasts: list[StepForecast] = []
    is_certain = True
    for planned in assessment.plan.steps:
        step = workspace.catalog[planned.entry.name]
        answer = step.check(_context(workspace, assessment, session, planned))
        releases = tuple(str(version) for version in planned.releases)
        forecasts.append(StepForecast(str(planned.entry), releases, answer, is_certain, step.irreversible))
        is_certain = is_certain and answer is Answer.HOLDS
    return tuple(forecasts)


def _context(workspace: Workspace, assessment: Assessment, session: Session, planned: PlannedStep) -> StepContext:
    return StepContext(
        tenant=assessment.tenant,
        settings=workspace.fleet.settings,
        session=session,
        status=assessment.status,
        fleet_root=workspace.fleet.root,
        state_directory=workspace.state_directory,
        arguments=planned.entry.arguments,
    )


def _diffs(assessment: Assessment, session: Session) -> list[tuple[str, ...]]:
    return [
        text_diff(item.rendered.file.path, session.read_file(item.rendered.file.path), item.rendered.content)
        for item in assessment.differences
    ]
