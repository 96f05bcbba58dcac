"""The counted acceptance check of a tenant, from one status. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from engine.hosts.status import Status
from engine.registry.model import Tenant
from engine.releases.version import Version
from engine.render.compare import compare
from engine.updater.assessment import render_at, version_of_record
from engine.updater.liveness import problems
from engine.updater.workspace import Workspace


class Verdict(StrEnum):
    """How one check ended."""

    PASSED = "passed"
    FAILED = "failed"
    WARNING = "expected warning"


@dataclass(frozen=True)
class Check:
    """One thing that was checked, and what was found."""

    name: str
    verdict: Verdict
    detail: str = ""


@dataclass(frozen=True)
class Verification:
    """All checks of one tenant."""

    slug: str
    checks: tuple[Check, ...]

    def count(self, verdict: Verdict) -> int:
        return sum(check.verdict is verdict for check in self.checks)

    @property
    def is_good(self) -> bool:
        return self.count(Verdict.FAILED) == 0

    @property
    def summary(self) -> str:
        """``59 passed, 0 failed, 4 expected warnings``."""
        passed, failed, warnings = (self.count(verdict) for verdict in Verdict)
        return f"{passed} passed, {failed} failed, {warnings} expected warnings"

    def document(self) -> dict[str, Any]:
        return {
            "slug": self.slug,
            "passed": self.count(Verdict.PASSED),
            "failed": self.count(Verdict.FAILED),
            "expected_warnings": self.count(Verdict.WARNING),
            "checks": [
                {"name": check.name, "verdict": check.verdict.value, "detail": check.detail} for check in self.checks
            ],
        }


def verify(workspace: Workspace, tenant: Tenant, status: Status) -> Verification:
    """Check services, gateway, channels, routes, rendered set and version of `tenant`."""
    version = version_of_record(tenant, status)
    return Verification(
        tenant.slug,
        (
            *_version(workspace, version),
            *_services(workspace, version, status),
            *_gateway(workspace, status),
            *_routes(workspace, version, status),
            *_rendered(workspace, tenant, version, status),
            *_owed(status),
        ),
    )


def _version(workspace: Workspace, version: Version | None) -> Iterator[Check]:
    head = workspace.manifest.head
    yield _check("head reached", version == head, f"the tenant is at {version or 'version zero'}, the head is {head}")


def _services(workspace: Workspace, version: Version | None, status: Status) -> Iterator[Check]:
    for service in workspace.fleet.settings.services:
        if not _exists_at(service.since, version):
            continue
        state = status.services.get(service.unit)
        found = f"{state.active} ({state.sub})" if state else "not reported"
        yield _check(f"service {service.unit}", bool(state and state.is_active), f"it is {found}")


def _gateway(workspace: Workspace, status: Status) -> Iterator[Check]:
    gateway = workspace.fleet.settings.gateway
    if gateway is None:
        return
    found = problems(status.gateway, gateway, None)
    state = status.gateway
    yield _check(f"service {gateway.unit}", bool(state and state.service.is_active), "; ".join(found))
    yield _check(f"port {gateway.port}", bool(state and state.port_open), "; ".join(found))
    for name in gateway.channels:
        channel = state.channels.get(name) if state else None
        yield _check(f"channel {name}", bool(channel and channel.is_connected and not found), "; ".join(found))
    running = state.running_version if state else None
    yield _check(
        "running version is the installed one",
        running is not None and running == status.runtime_version,
        f"running {running}, installed {status.runtime_version}",
    )


def _routes(workspace: Workspace, version: Version | None, status: Status) -> Iterator[Check]:
    for route in workspace.fleet.settings.routes:
        if not _exists_at(route.since, version):
            continue
        answer = status.routes.get(route.name)
        yield _check(
            f"route {route.name}",
            answer == route.status,
            f"answered {answer or 'nothing'}, wanted {route.status}",
        )


def _exists_at(since: str | None, version: Version | None) -> bool:
    """Whether a tenant at `version` (None: version zero) has what the settings say is there `since`."""
    return since is None or (version is not None and not version < Version.parse(since))


def _rendered(workspace: Workspace, tenant: Tenant, version: Version | None, status: Status) -> Iterator[Check]:
    if version is None:
        return
    rendered = render_at(workspace, tenant, version)
    different = {item.rendered.file.name: item for item in compare(rendered, status.rendered)}
    for item in rendered:
        difference = different.get(item.file.name)
        detail = (
            f"{item.file.path} differs in {', '.join(change.aspect for change in difference.changes)}"
            if difference
            else ""
        )
        yield _check(f"rendered {item.file.name}", difference is None, detail)


def _owed(status: Status) -> Iterator[Check]:
    owed = status.owed
    yield _check(
        "nothing owed",
        not (owed.restart or owed.switches or owed.reloads),
        f"owed: {', '.join((*owed.restart, *owed.reloads, *owed.switches))}",
    )
    if owed.note:
        yield Check("owner note", Verdict.WARNING, f"the note for {owed.note.version} is still owed")


def _check(name: str, is_good: bool, detail: str) -> Check:
    return Check(name, Verdict.PASSED if is_good else Verdict.FAILED, "" if is_good else detail)
