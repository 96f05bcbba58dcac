"""One walk over all releases on one host, with its disk parked at each start point, beside a fresh tenant."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.clock import SystemClock, new_run_id
from engine.drift.check import check_many
from engine.drift.report import Drift
from engine.hosts.session import Session
from engine.hosts.status import Answer
from engine.provision.installer import provision_many
from engine.provision.providers.lab import HostSpec
from engine.registry.load import load_fleet
from engine.registry.model import Tenant
from engine.releases.manifest import load_manifest
from engine.releases.model import Release
from engine.releases.plan import why_not
from engine.steps.context import StepContext
from engine.steps.operation import apply_step
from engine.steps.step import Step
from engine.updater.events import Event, Phase
from engine.updater.fleet import ask_many
from engine.updater.outcome import Outcome
from engine.updater.workspace import Workspace, open_workspace
from tests.lab.manifest.parked import park
from tests.lab.manifest.trees import Tree, compare, differences
from tests.lab.reference_fleet import REPOSITORY, ReferenceFleet, change_yaml

SLUG = "maple"
RELEASES = load_manifest(REPOSITORY / "releases.yaml").releases
TENANT = load_fleet(REPOSITORY).tenants[SLUG]
# A crash loop is looked for by tests of its own.
QUICK = {"liveness": {"steady_seconds": 0.5, "poll_seconds": 0.2}}

START_POINTS = range(len(RELEASES))
"""How many releases a tenant may have when it goes on to the head."""

UPGRADES = [
    number for number, release in enumerate(RELEASES) if any(entry.name == "runtime" for entry in release.steps)
]
QUICK_STARTS = sorted({0, 1, *UPGRADES, *(number + 1 for number in UPGRADES), len(RELEASES) - 1})


@dataclass
class Walk:
    """A fleet whose tenant takes one release at a time, and another whose tenant goes straight to the head."""

    walked: ReferenceFleet
    fresh: ReferenceFleet
    starts: Sequence[int]
    changed_by_second_run: dict[str, dict[str, tuple[str, str]]] = field(default_factory=dict)
    steps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    drift: dict[str, object] = field(default_factory=dict)
    different_from_fresh: dict[str, tuple[str, str]] = field(default_factory=dict)
    compared: int = 0

    @classmethod
    def create(cls, directory: Path, starts: Sequence[int]) -> Walk:
        walked, fresh = (ReferenceFleet.create(directory / name, **QUICK) for name in ("walked", "fresh"))
        for fleet in (walked, fresh):
            change_yaml(
                fleet.root / "inventory/tenants.yaml",
                lambda found: {"tenants": dict.fromkeys((SLUG, *parked_names(starts)), found["tenants"][SLUG])},
            )
        # One operator: the same key on both servers.
        shutil.copytree(walked.root / "var/ssh", fresh.root / "var/ssh", dirs_exist_ok=True)
        return cls(walked, fresh, starts)

    def go(self) -> None:
        """Provision the fresh tenant in a process of its own while the other one walks."""
        command = Command(self.fresh, "provision", SLUG, "--confirm", SLUG)
        self.begin()
        for number, release in enumerate(RELEASES, start=1):
            self.take(number, release)
        self._converge()
        outcome = command.outcomes()[SLUG]
        assert (outcome["error"], outcome["to_version"]) == (None, str(RELEASES[-1].version))
        fresh_tree = Tree.of(self.fresh.lab, SLUG)
        self.compared = len(self.tree.paths() | fresh_tree.paths())
        self.different_from_fresh = compare(self.tree, fresh_tree)

    def begin(self) -> None:
        """Phases A and B; the disk is parked between them and the first release: that is version zero."""
        self.walked.release(1)
        lab = self.walked.lab

        def report(event: Event) -> None:
            if event.phase is Phase.PROBE and 0 in self.starts and lab.find(parked_name(0)) is None:
                park(lab, SLUG, parked_name(0))

        workspace = open_workspace(self.walked.root, report=report)
        (outcome,) = provision_many(workspace, [workspace.fleet.tenants[SLUG]])
        assert outcome.error is None, outcome.error
        self.steps[str(RELEASES[0].version)] = self._completed()

    def take(self, number: int, release: Release) -> None:
        """Converge to one release, park the disk, and run the release's steps again by force."""
        version = str(release.version)
        if number > 1:
            self.walked.release(number)
            self._converge()
            self.steps[version] = self._completed()
        self.drift[version] = drift_of(self.walked.workspace)
        if number in self.starts:
            park(self.walked.lab, SLUG, parked_name(number))
        before = self.tree.read()
        run_by_force(self.walked.workspace, release)
        self.changed_by_second_run[version] = differences(before, self.tree.read())

    @cached_property
    def tree(self) -> Tree:
        return Tree.of(self.walked.lab, SLUG)

    def go_on(self, starts: Iterable[int]) -> Mapping[str, Mapping[str, Any]]:
        """Start the parked hosts and converge all of them to the head with one command; the outcomes by name."""
        names = parked_names(starts)
        lab = self.walked.lab
        lab.up([HostSpec(name, None, TENANT.ssh_user) for name in names])
        lab.wait_ready(names)
        return Command(self.walked, "converge", *names).outcomes()

    def _converge(self) -> Outcome:
        (outcome,) = self.walked.converge(SLUG)
        assert outcome.error is None, outcome.error
        return outcome

    def _completed(self) -> tuple[str, ...]:
        """The steps of the newest run, those whose effect was there already among them."""
        state = self.walked.workspace.runs.latest(TENANT.subject)
        assert state is not None
        return tuple(state["completed_steps"])

    def destroy(self) -> None:
        for fleet in (self.walked, self.fresh):
            fleet.lab.destroy()
            shutil.rmtree(fleet.root)


class Command:
    """A `tenantry` command with ``--json``, in a process of its own."""

    def __init__(self, fleet: ReferenceFleet, *arguments: str) -> None:
        program = Path(sys.executable).with_name("tenantry")
        argv = [program, "-C", fleet.root, *arguments, "--json"]
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def outcomes(self) -> dict[str, dict[str, Any]]:
        """Wait for the end; each tenant's outcome by its slug."""
        output, errors = self._process.communicate()
        try:
            return {outcome["slug"]: outcome for outcome in json.loads(output)["tenants"]}
        except ValueError as error:
            raise AssertionError(f"no document: {output[-2000:]} {errors[-2000:]}") from error


def drift_of(workspace: Workspace) -> object:
    """The keys that are not as expected, or the error that stands in their place."""
    (found,) = check_many(workspace, [workspace.fleet.tenants[SLUG]])
    return [str(item) for item in found.differences] if isinstance(found, Drift) else found


def parked_name(number: int) -> str:
    return f"at-{number}"


def parked_names(starts: Iterable[int]) -> tuple[str, ...]:
    return tuple(parked_name(number) for number in starts)


def run_by_force(workspace: Workspace, release: Release) -> None:
    """Run each step of `release` again whatever its precondition says, and see that it holds afterwards."""

    def work(tenant: Tenant, session: Session) -> str:
        session.claim(new_run_id(SystemClock()))
        for entry in release.steps:
            step = workspace.catalog[entry.name]
            if why_not(step.info, tenant.trade, tenant.role.value):
                continue
            context = StepContext(
                tenant=tenant,
                settings=workspace.fleet.settings,
                session=session,
                status=session.probe(),
                fleet_root=workspace.fleet.root,
                state_directory=workspace.state_directory,
                arguments=entry.arguments,
            )
            apply_step(forced(step), context)
            fresh = dataclasses.replace(context, status=session.probe())
            assert step.check(fresh) is Answer.HOLDS, f"{entry} after its second run"
        return "done"

    (answer,) = ask_many(workspace, [workspace.fleet.tenants[SLUG]], work)
    assert answer == "done", answer


def forced(step: Step) -> Step:
    """The same step, whose precondition never holds; an upgrade installs its version again."""
    never = {name: lambda self, context: Answer.DOES_NOT_HOLD for name in ("check", "is_prepared")}
    kind = type(f"Forced{type(step).__name__}", (type(step),), never)
    values = {item.name: getattr(step, item.name) for item in dataclasses.fields(step)}
    return kind(**values)
