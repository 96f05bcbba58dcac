"""Machines of environments: lab hosts, each with one program of a release and what that reads at boot."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from engine.environments.drivers.base import CreateRequest, Kind, MachineContent, Owned
from engine.environments.drivers.trouble import INCOMPLETE, Effects, ProviderTrouble, Trouble
from engine.environments.names import names_of
from engine.environments.observation import Absent, Label, Mark, Observation, Present, Unknown, read_label
from engine.errors import DriverRefused, MissingPart, Refused, TenantryError, UnknownState
from engine.provision.providers.lab import SLUG, HostContent, HostFile, HostSpec, Lab, LabHost

SETTLE_SECONDS = 2.0
"""A killed command of the lab still ends what it began; nothing else of it comes later."""

PROGRAMS = "/opt/environment"
BINDING = "/etc/environment-binding.json"
UNIT = "environment.service"

_UNIT_TEXT = f"""\
[Unit]
Description=Program of a hosted environment

[Service]
ExecStart=/usr/bin/python3 {PROGRAMS}/main.py
LoadCredential=binding:{BINDING}
DynamicUser=yes
PrivateDevices=yes
Restart=always
RestartSec=1

[Install]
WantedBy=multi-user.target
"""

_NEEDLESS = ("caddy.service",)
"""What tenants' hosts run and machines do not."""


def slug_of(name: str) -> str:
    """The lab host that the resource `name` is; raises `ValueError` for a name that no host can have."""
    if SLUG.fullmatch(name) is None:
        raise ValueError(f"{name} is no name of a lab host")
    return name


class LabMachines:
    """The kinds gateway and web. One that is switched off is present: power is no part of what was asked for."""

    def __init__(
        self, kind: Kind, lab: Lab, public_key: Callable[[], str], settle_seconds: float = SETTLE_SECONDS
    ) -> None:
        """`public_key` gives the operator's, for a look inside; it is asked where a machine is made."""
        self.kind = kind
        self.settle_seconds = settle_seconds
        self._lab = lab
        self._public_key = public_key

    def name(self, uuid: str) -> str:
        found: str = getattr(names_of(uuid), self.kind)
        return found

    def observe(self, name: str) -> Observation:
        try:
            host = self._find(slug_of(name))
        except ProviderTrouble as trouble:
            return trouble.unknown
        return Absent() if host is None else self._seen(host)

    def create(self, request: CreateRequest) -> Observation:
        """Make the machine and switch it on, without waiting until it serves."""
        effects = Effects(self.kind, request.name)
        label = Label(self.kind, request.mark, request.digest).text()
        if request.machine is None:
            raise DriverRefused("a machine needs its programs", where=f"{self.kind} {request.name}")
        spec = HostSpec(
            slug_of(request.name), public_key=self._public_key(), label=label, content=_content(request.machine)
        )
        try:
            host = self._find(spec.slug)
        except ProviderTrouble as trouble:
            raise effects.error(trouble) from trouble
        if host is not None and host.label != label:
            raise effects.refuse(Trouble.FOREIGN)
        try:
            self._lab.up([spec])
        except (TenantryError, OSError) as error:
            seen = self.observe(request.name)
            # The label is recorded before anything else, so without it nothing of this request was done.
            if not isinstance(seen, Unknown) and getattr(seen, "mark", None) != request.mark:
                raise effects.error(ProviderTrouble(_word(error, seen))) from error
            effects.begin()
            raise effects.error(ProviderTrouble(_word(error, seen))) from error
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        """Remove the machine with its disk, without a farewell."""
        effects = Effects(self.kind, name)
        try:
            host = self._find(slug_of(name))
        except ProviderTrouble as trouble:
            raise effects.error(trouble) from trouble
        if host is None:
            return
        label = self._label(host)
        if label is None or label.mark != mark:
            raise effects.refuse(Trouble.FOREIGN)
        try:
            self._lab.destroy_labelled(host.slug, label.text())
        except (Refused, MissingPart) as error:
            # Said before anything is touched: it is gone or somebody else's by now, or this machine lacks something.
            seen = self.observe(name)
            if not isinstance(seen, Absent):
                raise effects.refuse(_word(error, seen)) from error
        except (TenantryError, OSError) as error:
            effects.begin()
            raise effects.error(ProviderTrouble(Trouble.PROVIDER_FAILED)) from error

    def list_owned(self) -> tuple[Owned, ...]:
        try:
            labels = [(host.slug, self._label(host)) for host in self._lab.list()]
        except (TenantryError, OSError, ValueError, TypeError, KeyError) as error:
            raise UnknownState(str(Trouble.UNREADABLE), where=f"list of kind {self.kind}") from error
        return tuple(Owned(slug, label.mark) for slug, label in labels if label is not None)

    def power_on(self, name: str) -> None:
        """Switch the machine on if it is off, with its disk as it is; raises `Refused` without a whole one."""
        if not self._lab.find_required(slug_of(name)).running:
            self._lab.start([slug_of(name)])

    def address(self, name: str) -> str:
        """Where it is reached; raises `Refused` if there is none."""
        return self._lab.find_required(slug_of(name)).address

    def _seen(self, host: LabHost) -> Present:
        # A host that was removed and made again has another key.
        instance = hashlib.sha256(host.host_key.encode()).hexdigest()[:16] if host.host_key else "unmade"
        reference = f"machine:{host.slug}:{instance}"
        label = self._label(host)
        if label is None:
            return Present(reference, INCOMPLETE, None)
        return Present(reference, label.digest if host.whole else INCOMPLETE, label.mark)

    def _label(self, host: LabHost) -> Label | None:
        label = read_label(host.label)
        return label if label is not None and label.kind == self.kind else None

    def _find(self, slug: str) -> LabHost | None:
        """The host, None for one that this machine has nothing of; raises `ProviderTrouble`."""
        try:
            host = self._lab.find(slug)
            remains = host is None and self._lab.has_remains(slug)
        except MissingPart:
            raise ProviderTrouble(Trouble.DENIED) from None
        except (TenantryError, OSError, ValueError, TypeError, KeyError):
            raise ProviderTrouble(Trouble.UNREADABLE) from None
        if remains:
            # Without its record nobody can say whose it is; the lab's next command removes it.
            raise ProviderTrouble(Trouble.UNREADABLE)
        return host


def _word(error: Exception, seen: Observation) -> Trouble:
    if isinstance(error, Refused) and isinstance(seen, Present):
        return Trouble.FOREIGN
    return Trouble.DENIED if isinstance(error, MissingPart) else Trouble.PROVIDER_FAILED


def _content(machine: MachineContent) -> HostContent:
    files = {
        BINDING: HostFile(machine.binding, 0o600),
        f"/etc/systemd/system/{UNIT}": HostFile(_UNIT_TEXT.encode()),
    }
    return HostContent(files, {PROGRAMS: machine.bundle}, (UNIT,), _NEEDLESS)
