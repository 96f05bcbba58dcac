"""What ``inventory/fleet.yaml`` says, as frozen values: every number and name that an operator may tune."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.registry.safeguards import Backup, Content, ContentKind, Recovery, Rehearsal, Timers


@dataclass(frozen=True)
class Window:
    """Hours that recur: on `days` from `start` to `end` in `time_zone`.

    `start` and `end` are ``HH:MM``; an end at or before the start lies on the next day.
    """

    start: str
    end: str
    days: tuple[str, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    time_zone: str = "UTC"


@dataclass(frozen=True)
class RenderedFile:
    """One file that is always what its template says for the tenant at its version.

    `since` is the first version that has the file (None: every version). A change owes a restart
    of the gateway where `restart` is set; `reload` names units that are reloaded at once.
    """

    name: str
    template: str
    path: str
    owner: str
    group: str
    mode: str
    since: str | None = None
    restart: bool = False
    reload: tuple[str, ...] = ()
    daemon_reload: bool = False


@dataclass(frozen=True)
class Service:
    """A systemd unit that must be active; `since` is the first version that has it (None: every version)."""

    unit: str
    since: str | None = None


@dataclass(frozen=True)
class Route:
    """One URL that the tenant's gateway or proxy must answer, seen from the tenant itself."""

    name: str
    url: str
    status: int = 200
    host: str | None = None
    since: str | None = None


@dataclass(frozen=True)
class Gateway:
    """The unit through which an owner reaches the runtime, and where it keeps its state.

    `state_file` is the runtime's own report of its channels, `database` the SQLite file with the
    conversations, `runtime_link` the symbolic link to the installed version. `error_pattern`, a regular expression
    of Python's, is found in a line of its log that tells of an error.
    """

    unit: str
    address: str
    port: int
    health_path: str
    state_file: str
    database: str
    config_file: str
    state_directory: str
    runtime_link: str
    channels: tuple[str, ...]
    empty_history_is_quiet: bool = True
    error_pattern: str = r"\b(ERROR|CRITICAL|FATAL)\b|^Traceback \("


@dataclass(frozen=True)
class Quiesce:
    """When a restart does not cut into a conversation (design section 6)."""

    silence_seconds: float = 90
    poll_seconds: float = 15
    polls: int = 40


@dataclass(frozen=True)
class Liveness:
    """How long the gateway may take to prove that the owner can reach it."""

    port_seconds: float = 120
    channel_seconds: float = 120
    steady_seconds: float = 5
    poll_seconds: float = 1


@dataclass(frozen=True)
class Transport:
    """Bounds of one connection to a host."""

    connect_seconds: float = 10
    connect_attempts: int = 3
    retry_minimum_seconds: float = 0.2
    retry_maximum_seconds: float = 1.5
    keepalive_seconds: float = 10
    dead_link_seconds: float = 30
    probe_seconds: float = 60
    command_seconds: float = 1800
    survivor_seconds: float = 300
    survivor_poll_seconds: float = 2
    output_limit_bytes: int = 4 * 1024 * 1024


@dataclass(frozen=True)
class Notify:
    """How an owner is told about an update. `target` is an Apprise URL template, or None for none."""

    limit_characters: int = 480
    target_secret: str | None = None


@dataclass(frozen=True)
class Provisioning:
    """How long a new server may take, and what its packages may need.

    SSH is tried every `poll_seconds`, at most `polls` times; then cloud-init has `cloud_init_seconds`.
    `artefacts` are files that must be there when cloud-init ends with recoverable errors.
    `package_lock_seconds` is how long phase A waits for another package manager; `repair_packages` says
    whether it may finish what an interrupted dpkg left.
    """

    poll_seconds: float = 10
    polls: int = 60
    cloud_init_seconds: float = 900
    artefacts: tuple[str, ...] = ()
    package_lock_seconds: float = 300
    repair_packages: bool = False


@dataclass(frozen=True)
class Hetzner:
    """How Hetzner Cloud is asked for servers; `token` is a secret reference.

    `image`, `server_type` and `location` are for tenants whose record says nothing else. A call that is
    safe to repeat is made at most `attempts` times; a rate limit is waited for up to `rate_limit_seconds`.
    """

    token: str = "env:HCLOUD_TOKEN"
    endpoint: str = "https://api.hetzner.cloud/v1"
    image: str = "debian-12"
    server_type: str = "cx23"
    location: str = "nbg1"
    request_seconds: float = 30
    attempts: int = 5
    retry_seconds: float = 1
    rate_limit_seconds: float = 300
    action_seconds: float = 600
    action_poll_seconds: float = 2


@dataclass(frozen=True)
class SecretSettings:
    """How secret references are followed.

    `age_identity_file` opens ``age:`` files: an age key, or an SSH key; a relative path starts at the
    state directory. A ``command:`` has `command_seconds` to print its secret.
    """

    age_identity_file: str = "ssh/id_ed25519"
    command_seconds: float = 30


class Gate(StrEnum):
    """What leads from a wave that did well to the next one: nothing more, or a person's word."""

    AUTOMATIC = "automatic"
    APPROVE = "approve"


@dataclass(frozen=True)
class Strategy:
    """How a rollout goes through the fleet.

    First the `canaries` (none named: the tenants of the test role, or the first tenant), then `waves`: each a
    count (``5``) or how much of the others has been reached after it (``25%``); the last wave takes the rest.
    After each wave come `soak_seconds` and another look at its tenants. A wave halts the rollout once at least
    one of its tenants went wrong and `error_count` of them or `error_percent` of its tenants did. A tenant
    without a result after `wave_seconds` counts as wrong, and so does one whose gateway wrote
    `error_lines` more error lines while it soaked than in as long a time before. Waves begin in one of the
    `windows` only; without any, at once.
    """

    canaries: tuple[str, ...] = ()
    waves: tuple[str, ...] = ("10%", "50%")
    soak_seconds: float = 3600
    error_count: int = 1
    error_percent: float = 10
    error_lines: int = 10
    gate: Gate = Gate.AUTOMATIC
    wave_seconds: float = 4 * 3600
    windows: tuple[Window, ...] = ()


class SessionPolicy(StrEnum):
    """What becomes of an open conversation whose prompt is not recognised when the personality changes."""

    WAIT = "wait"
    RESET = "reset"


@dataclass(frozen=True)
class SessionColumns:
    """The runtime's columns for a conversation: its name, the prompt that it goes on with, and when it ended.

    `ended` is null while it is open, else Unix seconds. `archived` is not zero where the owner has put it away,
    `source` the channel it came by; a runtime may have neither.
    """

    id: str
    prompt: str
    ended: str
    archived: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class SessionReset:
    """How the runtime ends conversations: a Python program of the fleet, run by the runtime's account on the tenant.

    `interpreter` is a command that takes ``-c`` and a program. It is given {"database", "sessions": [id]} on
    standard input, with the gateway stopped. `notice` is what the owner is told.
    """

    interpreter: tuple[str, ...]
    program: str
    notice: str


@dataclass(frozen=True)
class Sessions:
    """How the runtime keeps the prompt that a conversation goes on with, in a table of the gateway's database.

    A prompt is the text of the rendered file `personality` without blanks around it, a blank line, and then
    `follows`. The runtime puts a personality of up to `longest_characters` into it unchanged. A conversation that
    ended in the last `resumable_days` may be resumed. `policy` is for open ones, of `sources` (empty: all), whose
    prompt is not recognised.
    """

    personality: str
    follows: str
    table: str
    columns: SessionColumns
    longest_characters: int = 20_000
    resumable_days: float = 0
    sources: tuple[str, ...] = ()
    policy: SessionPolicy = SessionPolicy.WAIT
    reset: SessionReset | None = None


@dataclass(frozen=True)
class DriftSettings:
    """From where on a difference counts as drift: a clock that is off by more than `clock_skew_seconds`."""

    clock_skew_seconds: float = 5


@dataclass(frozen=True)
class LabSettings:
    """How this fleet's lab hosts look."""

    suite: str = "bookworm"
    packages: tuple[str, ...] = ()
    model_stub: str | None = None
    model_stub_port: int = 8099


@dataclass(frozen=True)
class HostingSettings:
    """How this fleet hosts environments.

    `authority` is the organization that all of them belong to. One without a public name answers on a name below
    `domain`. `journal` is a path; a relative one starts at the state directory. A new environment has
    `serve_seconds` to answer. `sweep_seconds` lie between two looks of `tenantry sweep`. A copy of a durable one
    is kept for `copies_kept_hours`, the newest for as long as the environment.
    """

    authority: str = "local"
    domain: str = "env.localhost"
    journal: str = "environments/journal.db"
    parallel: int = 4
    serve_seconds: float = 120
    sweep_seconds: float = 3600
    copies_kept_hours: float = 14 * 24

    def journal_file(self, state_directory: Path) -> Path:
        """Where the journal is."""
        return state_directory / Path(self.journal).expanduser()


@dataclass(frozen=True)
class Settings:
    """`inventory/fleet.yaml`: every number and name that an operator may tune.

    `identity_file` is the operator's SSH key; a relative path starts at the state directory.
    """

    brand: str
    identity_file: str = "ssh/id_ed25519"
    batch_size: int = 250
    parallel: int = 20
    runs_kept: int = 200
    gateway: Gateway | None = None
    services: tuple[Service, ...] = ()
    routes: tuple[Route, ...] = ()
    rendered: tuple[RenderedFile, ...] = ()
    quiesce: Quiesce = Quiesce()
    liveness: Liveness = Liveness()
    transport: Transport = Transport()
    notify: Notify = Notify()
    provision: Provisioning = Provisioning()
    hetzner: Hetzner = Hetzner()
    secrets: SecretSettings = SecretSettings()
    contents: tuple[Content, ...] = ()
    backup: Backup = field(default_factory=Backup)
    recovery: Recovery = field(default_factory=Recovery)
    rehearsal: Rehearsal = field(default_factory=Rehearsal)
    timers: Timers = field(default_factory=Timers)
    strategies: Mapping[str, Strategy] = field(default_factory=dict)
    sessions: Sessions | None = None
    drift: DriftSettings = DriftSettings()
    lab: LabSettings = LabSettings()
    environments: HostingSettings = HostingSettings()
    template_values: Mapping[str, Any] = field(default_factory=dict)

    def contents_of(self, *kinds: ContentKind) -> tuple[Content, ...]:
        """The contents of these kinds, in the file's order."""
        return tuple(content for content in self.contents if content.kind in kinds)
