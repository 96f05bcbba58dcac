"""The probe's sending side: what it is asked, and how its answer becomes a :class:`Status`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from engine.errors import ProbeFailed
from engine.hosts.channel import Output
from engine.hosts.scripts import INTERPRETER, read_frame
from engine.hosts.shell import HostShell, Streams, failure
from engine.hosts.status import Status
from engine.hosts.status_reader import read_status
from engine.registry.model import Tenant
from engine.registry.settings import Gateway, Route, Settings

SCRIPT = Path(__file__).with_name("probe_script.py").read_text()
GATEWAY_SCRIPT = Path(__file__).with_name("probe_gateway_script.py").read_text()

_HINT = "its state is unknown, so nothing is done; look at python3 and the shell's start files on the host"


@dataclass(frozen=True)
class Part:
    """A further question: `script` defines the function `name`, which is called with `parameters`.

    It may use what ``probe_script.py`` defines. What it returns is in the status's `facts` under its name.
    """

    name: str
    script: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Extra:
    """Units, files and whatever else the caller wants to know besides what the settings name."""

    units: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()


def probe(shell: HostShell, settings: Settings, tenant: Tenant, extra: Extra) -> Status:
    """One read-only question over standard input; raises :class:`ProbeFailed` without one whole answer."""
    nonce = secrets.token_hex(8)
    script = make_script(nonce, settings, tenant, extra)
    bound = settings.transport.probe_seconds
    output = shell.read_only([*INTERPRETER, "-"], Streams(stdin=script.encode()), label="probe", timeout=bound)
    return read_answer(output, nonce, settings, shell.where, tuple(part.name for part in extra.parts))


def make_script(nonce: str, settings: Settings, tenant: Tenant, extra: Extra) -> str:
    """The probe's script with its question as the last line.

    Compiling it is a third of what the probe costs a host, so a part that has nothing to ask stays away.
    """
    asks = bool(settings.gateway or settings.routes)
    scripts = [SCRIPT, *([GATEWAY_SCRIPT] if asks else []), *(part.script for part in extra.parts)]
    names = [*(["routes", "gateway"] if asks else []), *(part.name for part in extra.parts)]
    more = ", ".join(f"{name!r}: {name}" for name in names)
    asked = question(settings, tenant, extra) | {part.name: dict(part.parameters) for part in extra.parts}
    return "\n".join([*scripts, f"main({nonce!r}, {asked!r}, {{{more}}})", ""])


def read_answer(output: Output, nonce: str, settings: Settings, where: str, parts: tuple[str, ...] = ()) -> Status:
    """What the host printed, as a status; raises :class:`ProbeFailed`."""
    if output.status != 0:
        raise ProbeFailed(failure(output, "probe", where).message, where=where, hint=_HINT)
    try:
        answer = read_frame(output.stdout, nonce)
        return replace(read_status(answer, settings), facts={name: answer[name] for name in parts})
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
        # Whatever a host can put into its answer, the others must not notice.
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ProbeFailed(f"the probe gave no single whole answer: {reason}", where=where, hint=_HINT) from error


def question(settings: Settings, tenant: Tenant, extra: Extra) -> dict[str, Any]:
    """The probe's parameters. Files of the rendered set are asked for by name, others by path."""
    gateway = settings.gateway
    services = [service.unit for service in settings.services]
    units = dict.fromkeys([*services, *([gateway.unit] if gateway else []), *extra.units])
    return {
        "units": list(units),
        "files": {
            **{path: path for path in extra.files},
            **{file.name: file.path for file in settings.rendered},
        },
        "routes": [{"name": route.name, **_route(route, tenant)} for route in settings.routes],
        "gateway": _gateway(gateway) if gateway else None,
    }


def _route(route: Route, tenant: Tenant) -> dict[str, Any]:
    """A route as seen from the tenant itself: its own address, the public name as the host."""
    parts = urlsplit(route.url)
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    host = (route.host or parts.hostname or "localhost").replace("{page_host}", tenant.page_host)
    return {
        "address": "127.0.0.1",
        "port": parts.port or (443 if tls else 80),
        "tls": tls,
        "path": path,
        "host": host,
    }


def _gateway(gateway: Gateway) -> dict[str, Any]:
    health = {"address": gateway.address, "port": gateway.port, "tls": False, "path": gateway.health_path}
    return {
        "health": {**health, "host": gateway.address},
        "runtime_link": gateway.runtime_link,
        "state_file": gateway.state_file,
        "database": gateway.database,
        "config_file": gateway.config_file,
    }
