"""What the inventory files say, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.subject import Subject


class Role(StrEnum):
    """Whether a tenant exists to try releases on, or belongs to a paying owner."""

    TEST = "test"
    CLIENT = "client"


@dataclass(frozen=True)
class Provider:
    """Where a tenant's server comes from, and what that provider needs to know about it."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tenant:
    """One owner, one server, one registry record.

    `address` is None where the provider tells it (lab hosts). `secrets` maps a secret's name to a
    reference such as ``age:secrets/maple.age``; the values are never held here.
    """

    slug: str
    owner_name: str
    business: str
    trade: str
    role: Role
    daily_backup: bool
    text_updates: bool
    address: str | None
    ssh_user: str
    ssh_port: int
    provider: Provider
    forwarding_address: str
    page_host: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        return Subject("tenant", self.slug)


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
    conversations, `runtime_link` the symbolic link to the installed version.
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


@dataclass(frozen=True)
class LabSettings:
    """How this fleet's lab hosts look."""

    suite: str = "bookworm"
    packages: tuple[str, ...] = ()
    model_stub: str | None = None
    model_stub_port: int = 8099


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
    lab: LabSettings = LabSettings()
    template_values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Fleet:
    """A fleet directory, read and checked."""

    root: Path
    settings: Settings
    tenants: Mapping[str, Tenant]
