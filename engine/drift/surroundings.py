"""What nobody declares and a person should know: drop-ins, failed units, packages, clock, process. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from engine.drift.compare import Difference, State
from engine.drift.expected import NOBODY, Expected, Owner, OwnerKind
from engine.drift.found import Found
from engine.hosts.status import Status
from engine.registry.settings import Gateway, Settings
from engine.releases.applied import check_applied
from engine.releases.version import Version
from engine.steps.expectations import Package
from engine.updater.workspace import Workspace

PROCESS_SLACK_SECONDS = 1.0
"""A process begins a moment after the link that it came through was switched; file times are that coarse."""


@dataclass(frozen=True)
class Moments:
    """When the operator's machine asked and when it had the answer, in Unix seconds."""

    before: float
    after: float


def surroundings(
    settings: Settings, expected: Mapping[str, Expected], found: Found, status: Status, moments: Moments
) -> Iterator[Difference]:
    """What was found besides the expectations."""
    yield from _drop_ins(expected, found)
    yield from _failed(expected, found)
    yield from _packages(expected, found)
    yield from _clock(status, moments, settings.drift.clock_skew_seconds)
    if settings.gateway:
        yield from _process(settings.gateway, found, status)


def releases(workspace: Workspace, version: Version | None, status: Status) -> Iterator[Difference]:
    """Releases of the manifest that the tenant has not applied, or has applied as they were before an edit."""
    applied = check_applied(workspace.manifest, workspace.digests, status.applied, version)
    for edited in applied.edited:
        yield _release(edited.version, f"applied as {edited.current}", f"applied as {edited.recorded}")
    for missed in applied.missed:
        yield _release(missed, f"applied as {workspace.digests[str(missed)]}", "never applied")


def _release(version: Version, expected: str, found: str) -> Difference:
    return Difference(f"release:{version}", State.DIFFERS, expected, found, Owner(OwnerKind.RELEASE, str(version)))


def _drop_ins(expected: Mapping[str, Expected], found: Found) -> Iterator[Difference]:
    for path in found.drop_ins:
        if f"file:{path}" not in expected and f"link:{path}" not in expected:
            yield Difference(f"drop-in:{path}", State.DIFFERS, "no drop-in", "a drop-in that nobody manages", NOBODY)


def _failed(expected: Mapping[str, Expected], found: Found) -> Iterator[Difference]:
    if found.failed is None:
        yield Difference("failed", State.UNKNOWN, "no failed unit", "systemd could not be asked", NOBODY)
    for unit in found.failed or ():
        # A unit that should be active is told by its own key.
        if f"unit:{unit}" not in expected:
            yield Difference(f"failed:{unit}", State.DIFFERS, "not failed", "failed", NOBODY)


def _packages(expected: Mapping[str, Expected], found: Found) -> Iterator[Difference]:
    if found.packages is None or found.downgraded is None:
        yield Difference("packages", State.UNKNOWN, "none held or downgraded", "dpkg could not be asked", NOBODY)
    packages = found.packages or {}
    for name, package in packages.items():
        if package.want == "hold":
            yield Difference(f"held:{name}", State.DIFFERS, "not held", f"held at {package.version}", NOBODY)
    for name, change in (found.downgraded or {}).items():
        wanted = expected.get(f"package:{name}")
        if wanted and wanted.expectation == Package(name, change.to_version):
            continue
        text = f"{change.to_version} since {change.at} (dpkg's log)"
        yield Difference(f"downgraded:{name}", State.DIFFERS, f"at least {change.from_version}", text, NOBODY)


def _clock(status: Status, moments: Moments, threshold: float) -> Iterator[Difference]:
    """The answer was made somewhere between both moments, so only what lies outside of them is certain."""
    skew = max(moments.before - status.clock, status.clock - moments.after, 0.0)
    if skew > threshold:
        side = "ahead" if status.clock > moments.after else "behind"
        words = f"within {threshold:g} s of this machine's"
        yield Difference("clock", State.DIFFERS, words, f"{skew:.1f} s {side}", NOBODY)


def _process(gateway: Gateway, found: Found, status: Status) -> Iterator[Difference]:
    """A gateway whose process began before what it runs from was put there; one without a process is told elsewhere."""
    key = f"process:{gateway.unit}"
    if found.process_started is not None:
        newer = [path for path, at in found.changed.items() if at > found.process_started + PROCESS_SLACK_SECONDS]
        if newer:
            yield Difference(
                key, State.DIFFERS, "began after its files", f"older than {', '.join(sorted(newer))}", NOBODY
            )
            return
    running = status.gateway.running_version if status.gateway else None
    if running and status.runtime_version and running != status.runtime_version:
        yield Difference(key, State.DIFFERS, f"runs {status.runtime_version}", f"runs {running}", NOBODY)
