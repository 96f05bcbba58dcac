"""What ``tenantry status --live`` asks the tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.cli.invocation import Invocation
from engine.cli.progress import progress
from engine.errors import TenantryError
from engine.hosts.status import GatewayState, Status
from engine.registry.model import Tenant
from engine.updater.fleet import ask_many
from engine.updater.standing import armed_document, held_document, moment, recovery_documents


def ask(
    invocation: Invocation, tenants: Sequence[Tenant], parallel: int | None
) -> dict[str, Mapping[str, Any] | TenantryError]:
    """The probe's answer of each tenant as a document, or the error that stands in its place."""
    workspace = invocation.workspace()
    with progress("status") as report:
        answers = ask_many(
            replace(workspace, report=report),
            tenants,
            lambda tenant, session: live_document(session.probe()),
            parallel=parallel,
        )
    return {tenant.slug: answer for tenant, answer in zip(tenants, answers, strict=True)}


def live_document(status: Status) -> Mapping[str, Any]:
    """One status as the part ``live`` of the status document."""
    owed = status.owed
    return {
        "version": str(status.marker.version) if status.marker.version else None,
        "marker": status.marker.state.value,
        "clock": moment(status.clock),
        "receipts": sorted(status.receipts),
        "runtime_version": status.runtime_version,
        "models": dict(status.models),
        "chat_model_pinned": status.chat_model_pinned,
        "routes": dict(status.routes),
        "services": {unit: state.active for unit, state in status.services.items()},
        "gateway": _gateway(status.gateway) if status.gateway else None,
        "host_lock": {"held": status.host_lock.held, "run": status.host_lock.run},
        "owed": {
            "restart": list(owed.restart),
            "reloads": list(owed.reloads),
            "switches": dict(owed.switches),
            "note": owed.note.version if owed.note else None,
        },
        "held": held_document(status),
        "armed": armed_document(status),
        "recovery_sets": recovery_documents(status),
    }


def _gateway(gateway: GatewayState) -> Mapping[str, Any]:
    newest = gateway.newest_message
    return {
        "active": gateway.service.active,
        "main_pid": gateway.service.main_pid,
        "port_open": gateway.port_open,
        "running_version": gateway.running_version,
        "channels": {name: channel.state for name, channel in gateway.channels.items()},
        "newest_message": moment(newest) if newest is not None else None,
    }
