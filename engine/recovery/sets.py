"""Recovery sets as the engine takes them; what they are is said in ``sets_script.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import Refused
from engine.hosts.host_lock import HOME
from engine.hosts.session import Session
from engine.recovery.assembly import assembled
from engine.registry.safeguards import ContentKind
from engine.registry.settings import Gateway, Settings
from engine.releases.version import Version

UNITS = "/etc/systemd/system"
_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True)
class Change:
    """What a set is taken for: run `run` on the way from a version (None: zero) to another.

    `links` are those that an upgrade may switch, besides the gateway's own. `moved` are trees whose live files will
    be moved into the set instead of being copied, each with ``path``, ``kind`` and ``exclude``.
    """

    run: str
    from_version: Version | None
    to_version: Version
    links: tuple[str, ...] = ()
    moved: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Taken:
    """The set that a run can be put back to: its own, or that of the interrupted run which it goes on from."""

    run: str
    irreversible: tuple[str, ...] = ()


def take(session: Session, change: Change) -> Taken:
    """Take the set of `change`, or find the one that is open; raises :class:`Refused` without enough room."""
    found = session.run_script(
        assembled("RESULT = sets.take(PARAMETERS)"), parameters(session.settings, change), label="take the recovery set"
    )
    if "problem" not in found:
        return Taken(found["set"], tuple(found["irreversible"]))
    if not found["needed"]:
        raise Refused(
            f"no recovery set can be taken: {found['problem']}",
            where=session.tenant.slug,
            hint="what belongs to a tenant's state must lie on the file system of the engine's directory",
        )
    raise Refused(
        f"there is no room for a recovery set: {_mebibytes(found['needed'])} MiB needed with the reserve, "
        f"{_mebibytes(found['free'])} MiB free",
        where=session.tenant.slug,
        hint=f"free space below {HOME} (`du -sh {HOME}/*`), or lower recovery.reserve_mebibytes; nothing was changed",
    )


def record_irreversible(session: Session, run: str, step: str) -> None:
    """Record, before the step runs, that there is no way back across it."""
    session.run_script(
        assembled("RESULT = sets.record_irreversible(**PARAMETERS)"),
        {"run": run, "step": step},
        label="record an irreversible step",
    )


def parameters(settings: Settings, change: Change) -> dict[str, Any]:
    """What ``sets.take`` is asked."""
    gateway, recovery = settings.gateway, settings.recovery
    moved = {tree["path"] for tree in change.moved}
    links = dict.fromkeys([*([gateway.runtime_link] if gateway else []), *change.links])
    return {
        "run": change.run,
        "from": str(change.from_version) if change.from_version else None,
        "to": str(change.to_version),
        "gateway": {"unit": gateway.unit, "database": gateway.database} if gateway else None,
        "scopes": [scope for scope in _configuration(settings) if scope["path"] not in moved],
        "states": [scope for scope in _states(settings, gateway) if scope["path"] not in moved],
        "moved": [dict(tree) for tree in change.moved],
        "links": list(links),
        "units": list(_units(settings)),
        "quiet": [file.path for file in settings.rendered if not file.reload and not file.daemon_reload],
        "reserve_bytes": recovery.reserve_mebibytes * _MEBIBYTE,
        "kept": recovery.kept,
    }


def _configuration(settings: Settings) -> list[dict[str, Any]]:
    contents = [_scope(item.path, item.exclude) for item in settings.contents_of(ContentKind.CONFIGURATION)]
    paths = [file.path for file in settings.rendered]
    if settings.gateway:
        paths += [f"{UNITS}/{settings.gateway.unit}", f"{UNITS}/{settings.gateway.unit}.d"]
    named = {scope["path"] for scope in contents}
    return contents + [_scope(path) for path in dict.fromkeys(paths) if path not in named]


def _states(settings: Settings, gateway: Gateway | None) -> list[dict[str, Any]]:
    if gateway is None:
        return []
    contents = [_scope(item.path, item.exclude) for item in settings.contents_of(ContentKind.STATE)]
    if not any(gateway.database.startswith(scope["path"] + "/") for scope in contents):
        contents.append(_scope(gateway.state_directory))
    return contents


def _units(settings: Settings) -> dict[str, None]:
    units = [service.unit for service in settings.services] + [u for file in settings.rendered for u in file.reload]
    own = settings.gateway.unit if settings.gateway else ""
    return dict.fromkeys(unit for unit in units if unit != own)


def _scope(path: str, exclude: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"path": path, "exclude": list(exclude)}


def _mebibytes(size: int) -> int:
    return -(-size // _MEBIBYTE)
