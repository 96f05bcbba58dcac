"""What the settings say of a tenant's files, of the ways back to them, and of what this machine does by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


@dataclass(frozen=True)
class Provider:
    """Where a tenant's server comes from, and what that provider needs to know about it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


class ContentKind(StrEnum):
    """What becomes of a part of a tenant's files when the tenant is put back to an earlier version.

    Backups hold all three. CONFIGURATION goes back with every rollback, STATE only where an upgrade changed
    its form, DATA (what the owner and visitors made) never.
    """

    CONFIGURATION = "configuration"
    STATE = "state"
    DATA = "data"


@dataclass(frozen=True)
class Content:
    """Files that make a tenant what it is, as opposed to what can be installed again.

    `path` is absolute; its last part may hold ``*`` and ``?``. `exclude` are patterns below `path`, such as
    ``cache`` or ``logs/*.log``: what they match, with everything below it, belongs to no backup and no
    recovery set. The rendered set, the gateway's unit and runtime link, and the engine's own marker and
    digests count as configuration without being listed.
    """

    name: str
    path: str
    kind: ContentKind
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Restic:
    """The restic repository that every published archive goes to; `password` is a secret reference.

    `environment` maps variables that restic's storage needs, such as ``AWS_SECRET_ACCESS_KEY``, to secret
    references.
    """

    repository: str
    password: str
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 3600


@dataclass(frozen=True)
class Backup:
    """How archives are made and kept; a relative `directory` starts at the state directory.

    The newest `kept` verified archives of a tenant stay. An archive below `minimum_bytes` is refused as
    empty. `level` is zstd's. `seconds` bounds one archive's whole stream.
    """

    directory: str = "backups"
    kept: int = 14
    minimum_bytes: int = 10 * 1024
    level: int = 3
    parallel: int = 4
    seconds: float = 4 * 3600
    restic: Restic | None = None


@dataclass(frozen=True)
class Recovery:
    """How a tenant is put back when its owner cannot reach it after a change.

    The newest `kept` recovery sets stay on the tenant; taking one must leave `reserve_mebibytes` free there.
    The dead-man acts when no command of a run has come for `dead_man_seconds`, looked at every
    `dead_man_poll_seconds`; it must be longer than liveness may take.
    """

    kept: int = 3
    reserve_mebibytes: int = 256
    dead_man_seconds: float = 420
    dead_man_poll_seconds: float = 15


@dataclass(frozen=True)
class Rehearsal:
    """How restores are rehearsed: on a scratch server of `provider`, without a way out and with dummy secrets.

    `local_channels` are those of the gateway's channels that need no outside account; the others are
    reported as unproven. `template_values` replace the fleet's on the scratch server. A rollout leaves
    tenants alone whose last proven restore is older than `block_after_days` (None: never).
    """

    provider: Provider = Provider("lab")
    local_channels: tuple[str, ...] = ()
    template_values: Mapping[str, Any] = field(default_factory=dict)
    block_after_days: float | None = None


@dataclass(frozen=True)
class Timers:
    """When the operator's machine works by itself, as systemd calendar events or ``never``; whom it tells of failures.

    Each start is delayed at random by up to `randomized_delay_seconds`. `notify` is a secret reference to an
    Apprise URL; a message has at most `limit_characters`, counted in UTF-16.
    """

    backup: str = "*-*-* 01:30:00"
    rehearse: str = "Sun *-*-* 03:00:00"
    drift: str = "*-*-* 02:30:00"
    env_backup: str = "*-*-* 02:00:00"
    tier_backup: str = "*-*-* 02:15:00"
    randomized_delay_seconds: float = 1800
    notify: str | None = None
    limit_characters: int = 1000
