"""Scratch servers: where a tenant's backup is rehearsed, without a way out and without one of its secrets."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from engine.errors import RecordFailed, Refused
from engine.hosts.session import Session
from engine.provision.servers import LAB, provider_for
from engine.records import replace_file
from engine.registry.freeze import freeze, thaw
from engine.registry.model import Fleet, Tenant
from engine.registry.safeguards import Provider
from engine.registry.settings import Settings
from engine.secrets import SecretSources
from engine.subject import Subject
from engine.updater.events import Event, Reporter
from engine.updater.notify import Delivery
from engine.updater.workspace import Workspace

KIND = "scratch"
PREFIX = "scratch-"
SLUG_CHARACTERS = 32
DIGEST_CHARACTERS = 8
SECRET_SCHEME = "made-up"
SECRET_BYTES = 24

WAYS_OUT = Path(__file__).with_name("ways_out_script.py").read_text()


def scratch_subject(tenant: Tenant) -> Subject:
    """What a rehearsal locks instead of the tenant, and what its runs are recorded under."""
    return Subject(KIND, tenant.slug)


def scratch_name(slug: str, taken: Collection[str]) -> str:
    """The name of a tenant's scratch server; raises :class:`Refused` if a registered tenant has it.

    Each tenant has its own: a name too long for a slug is cut and gets a digest of the whole, after a second
    hyphen that no other name has there.
    """
    name = PREFIX + slug
    if len(name) > SLUG_CHARACTERS:
        digest = hashlib.sha256(slug.encode()).hexdigest()[:DIGEST_CHARACTERS]
        room = SLUG_CHARACTERS - len(PREFIX) - DIGEST_CHARACTERS - 2
        name = f"{PREFIX}-{slug[:room]}-{digest}"
    if name in taken:
        raise Refused(
            f"its scratch server would be called {name}, which is a tenant's name",
            where=slug,
            hint="rename that tenant in inventory/tenants.yaml; a rehearsal destroys the server of that name",
        )
    return name


def scratch_tenant(fleet: Fleet, tenant: Tenant) -> Tenant:
    """`tenant` as a rehearsal has it: another server, no owner to write to, secrets that are made up."""
    return replace(
        tenant,
        slug=scratch_name(tenant.slug, fleet.tenants),
        address=None,
        provider=fleet.settings.rehearsal.provider,
        text_updates=False,
        secrets={name: f"{SECRET_SCHEME}:{name}" for name in tenant.secrets},
    )


def require_isolated(workspace: Workspace, scratch: Tenant) -> None:
    """Raise :class:`Refused` unless the provider of the scratch server `scratch` promises that it has no way out."""
    if not provider_for(workspace, scratch, lambda text: None).isolated:
        raise Refused(
            f"provider {scratch.provider.name} cannot promise that a scratch server has no way out",
            where="inventory/fleet.yaml: rehearsal.provider",
            hint=f"rehearse with provider {LAB}",
        )


@dataclass(frozen=True)
class ScratchMarks:
    """Which scratch servers there may be: each is marked in `directory` before it is made, until it is gone.

    What was left behind is known by its mark alone. Its tenant may be removed from the registry meanwhile, and what
    only has such a name was made by somebody else.
    """

    directory: Path

    def put(self, server: Tenant, tenant: Tenant) -> None:
        """Mark the scratch `server` of `tenant`; raises :class:`RecordFailed`."""
        mark = {"tenant": tenant.slug, "provider": server.provider.name, "options": thaw(server.provider.options)}
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise RecordFailed(
                f"a scratch server cannot be marked: {error.strerror}",
                where=str(self.directory),
                hint="free space or correct permissions",
            ) from error
        replace_file(self._file(server.slug), (json.dumps(mark) + "\n").encode())

    def has(self, server: Tenant) -> bool:
        return self._file(server.slug).exists()

    def remove(self, server: Tenant) -> None:
        """The server is gone, and so is its mark."""
        self._file(server.slug).unlink(missing_ok=True)

    def left(self, template: Tenant) -> Iterator[tuple[Tenant, Subject]]:
        """Every marked server as a tenant, `template` in all that no provider needs to destroy it; and its lock."""
        for file in sorted(self.directory.glob("[a-z]*.json")):
            mark = _mark(file)
            if mark is not None:
                provider = Provider(mark["provider"], freeze(mark["options"]))
                yield replace(template, slug=file.stem, provider=provider), Subject(KIND, mark["tenant"])

    def _file(self, slug: str) -> Path:
        return self.directory / f"{slug}.json"


def _mark(file: Path) -> Mapping[str, Any] | None:
    """What a mark says, None for one that another rehearsal has removed meanwhile; raises :class:`RecordFailed`."""
    try:
        return dict(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        raise RecordFailed(
            f"the mark of a scratch server cannot be read: {error}",
            where=str(file),
            hint=f"see that the server {file.stem} is gone, and remove the file",
        ) from error


def marks_of(workspace: Workspace) -> ScratchMarks:
    """The marks of this fleet and state directory."""
    return ScratchMarks(workspace.state_directory / "scratch")


def scratch_settings(settings: Settings) -> Settings:
    """The fleet's settings on a scratch server: local channels alone, the rehearsal's values, nobody told."""
    rehearsal, gateway = settings.rehearsal, settings.gateway
    if gateway:
        local = tuple(name for name in gateway.channels if name in rehearsal.local_channels)
        gateway = replace(gateway, channels=local)
    return replace(
        settings,
        gateway=gateway,
        template_values={**settings.template_values, **rehearsal.template_values},
        notify=replace(settings.notify, target_secret=None),
    )


def unproven_channels(settings: Settings) -> tuple[str, ...]:
    """The channels that need an account outside, of which a rehearsal says nothing."""
    channels = settings.gateway.channels if settings.gateway else ()
    return tuple(name for name in channels if name not in settings.rehearsal.local_channels)


def scratch_workspace(workspace: Workspace, tenants: Iterable[Tenant]) -> Workspace:
    """The workspace in which the scratch servers of `tenants` are provisioned and converged like any other.

    Raises :class:`Refused` before anything is touched. Events name the tenants.
    """
    fleet = workspace.fleet
    stand_ins = {tenant.slug: scratch_tenant(fleet, tenant) for tenant in tenants}
    names = {scratch.slug: slug for slug, scratch in stand_ins.items()}
    return replace(
        workspace,
        fleet=Fleet(fleet.root, scratch_settings(fleet.settings), {item.slug: item for item in stand_ins.values()}),
        report=_renamed(workspace.report, names),
        own_secrets=MadeUpSecrets(fleet.root, workspace.state_directory),
    )


def require_no_way_out(session: Session) -> None:
    """Raise :class:`Refused` if the scratch server has a route, in any table, to anywhere but its own network."""
    routes = session.run_script(WAYS_OUT, {}, label="look for ways out")["routes"]
    if routes:
        raise Refused(
            f"the scratch server has a way out: {', '.join(routes)}",
            where=session.tenant.slug,
            hint="the archive was not taken there; a rehearsal needs a network that ends at this machine",
        )


def tell_nobody(target: str, text: str) -> Delivery:
    """What stands for the owner's messenger in a rehearsal: nothing is ever sent."""
    return Delivery.REFUSED


@dataclass(frozen=True)
class MadeUpSecrets(SecretSources):
    """Values of a sane form for a scratch server; no reference of a tenant is followed, not even to look.

    A name has the same value each time.
    """

    values: dict[str, bytes] = field(default_factory=dict)

    def resolve(self, reference: str) -> bytes:
        scheme, _, name = reference.partition(":")
        if scheme != SECRET_SCHEME:
            _refuse_to_follow(reference)
        return self.values.setdefault(name, secrets.token_urlsafe(SECRET_BYTES).encode())


def _refuse_to_follow(reference: str) -> NoReturn:
    raise Refused(f"a rehearsal does not follow the secret {reference}", hint="no scratch server may need it")


def _renamed(report: Reporter, names: dict[str, str]) -> Reporter:
    def take(event: Event) -> None:
        report(replace(event, subject=names.get(event.subject, event.subject)))

    return take
