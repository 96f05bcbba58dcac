"""Hetzner Cloud as a provider of tenants' servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hcloud.actions import BoundAction
from hcloud.images import Image
from hcloud.locations import Location
from hcloud.server_types import ServerType
from hcloud.servers import BoundServer

from engine.clock import Clock
from engine.errors import CommandFailed, InvalidInput, Refused, UnknownState, Unreachable
from engine.provision.providers.base import Server
from engine.provision.providers.hetzner.api import HetznerApi
from engine.registry.model import Tenant
from engine.registry.settings import Hetzner

LABEL = "tenantry"
"""Label of the servers that Tenantry created; its value is the tenant's slug."""


@dataclass(frozen=True)
class Options:
    """What a tenant's record says about its server under ``provider``; the fleet's settings otherwise."""

    server: str
    image: str
    server_type: str
    location: str

    @classmethod
    def of(cls, tenant: Tenant, settings: Hetzner) -> Options:
        """Raises :class:`InvalidInput` for an option that Hetzner servers do not have."""
        given: Mapping[str, Any] = tenant.provider.options
        known = {
            "server": tenant.slug,
            "image": settings.image,
            "server_type": settings.server_type,
            "location": settings.location,
        }
        wrong = [name for name, value in given.items() if name not in known or not isinstance(value, str)]
        if wrong:
            raise InvalidInput(
                f"provider hetzner has no such option or wants text: {', '.join(sorted(wrong))}",
                where=f"inventory/tenants.yaml: {tenant.slug}",
                hint=f"it takes {', '.join(known)}",
            )
        return cls(**{**known, **given})


class HetznerProvider:
    """Implements `Provider`; a tenant's server is the one of its slug's name, or of the option ``server``."""

    makes_host_keys = False
    isolated = False

    def __init__(self, token: Callable[[], str], settings: Hetzner, clock: Clock, tell: Callable[[str], None]) -> None:
        """`token` gives the API token when it is first needed."""
        self._token = token
        self._settings = settings
        self._clock = clock
        self._tell = tell
        self._api: HetznerApi | None = None

    def find(self, tenant: Tenant) -> Server | None:
        server = self._find(tenant)
        return None if server is None else _server(server)

    def create(self, tenant: Tenant, user_data: str) -> Server:
        options, api = self._options(tenant), self._connected(tenant)
        if self._find(tenant) is not None:
            raise Refused(f"Hetzner has a server {options.server} already", where=tenant.slug)
        answer = api.act(
            f"create server {options.server}",
            lambda: api.client.servers.create(
                name=options.server,
                server_type=ServerType(name=options.server_type),
                image=Image(name=options.image),
                location=Location(name=options.location),
                user_data=user_data,
                labels={LABEL: tenant.slug},
            ),
        )
        for action in (answer.action, *answer.next_actions):
            self._await_action(tenant, action)
        return _server(self._required(tenant))

    def rebuild(self, tenant: Tenant, user_data: str) -> Server:
        options, api, server = self._options(tenant), self._connected(tenant), self._required(tenant)
        answer = api.act(
            f"rebuild server {server.id}",
            lambda: api.client.servers.rebuild(server, Image(name=options.image), user_data=user_data),
        )
        self._await_action(tenant, answer.action)
        return _server(self._required(tenant))

    def destroy(self, tenant: Tenant) -> None:
        api, server = self._connected(tenant), self._find(tenant)
        if server is not None:
            self._await_action(tenant, api.act(f"delete server {server.id}", server.delete))

    def wait(self, tenant: Tenant, timeout_seconds: float) -> None:
        deadline = self._clock.monotonic() + timeout_seconds
        while (status := self._required(tenant).status) != BoundServer.STATUS_RUNNING:
            if self._clock.monotonic() >= deadline:
                raise Unreachable(f"Hetzner's server is {status} after {timeout_seconds:g} s", where=tenant.slug)
            self._clock.sleep(self._settings.action_poll_seconds)

    def preview(self, tenant: Tenant) -> tuple[str, ...]:
        options, base = self._options(tenant), self._settings.endpoint
        return (
            f"hetzner: GET {base}/servers?name={options.server} with the token of {self._settings.token}",
            f"hetzner: POST {base}/servers/ID/actions/rebuild image={options.image} with new user-data",
            f"hetzner: GET {base}/actions/ID every {self._settings.action_poll_seconds:g} s until it is finished",
            f"hetzner: GET {base}/servers?name={options.server} until it is running",
        )

    def _find(self, tenant: Tenant) -> BoundServer | None:
        name, api = self._options(tenant).server, self._connected(tenant)
        found = api.ask(f"look for server {name}", lambda: api.client.servers.get_all(name=name))
        if len(found) > 1:
            listing = "; ".join(f"id {server.id} at {', '.join(_addresses(server))}" for server in found)
            raise Refused(
                f"Hetzner has {len(found)} servers named {name}: {listing}",
                where=tenant.slug,
                hint="give them different names; nothing was rebuilt",
            )
        return found[0] if found else None

    def _required(self, tenant: Tenant) -> BoundServer:
        server = self._find(tenant)
        if server is None:
            raise Refused(f"Hetzner has no server {self._options(tenant).server}", where=tenant.slug)
        return server

    def _await_action(self, tenant: Tenant, action: BoundAction) -> None:
        """Return when the action succeeded; raises :class:`CommandFailed` with Hetzner's reason if it failed."""
        api, what = self._connected(tenant), f"{action.command} (action {action.id})"
        deadline = self._clock.monotonic() + self._settings.action_seconds
        while action.status == BoundAction.STATUS_RUNNING:
            if self._clock.monotonic() >= deadline:
                raise UnknownState(
                    f"{what} is not finished after {self._settings.action_seconds:g} s",
                    where=tenant.slug,
                    hint="look into the provider's console; the bound is hetzner.action_seconds in fleet.yaml",
                )
            self._clock.sleep(self._settings.action_poll_seconds)
            api.ask(f"look at {what}", action.reload)
        if action.status == BoundAction.STATUS_ERROR:
            error = action.error or {"code": "unknown", "message": "no reason given"}
            raise CommandFailed(
                f"{what} failed: {error['message']} ({error['code']})",
                where=tenant.slug,
                hint="the server may be half rebuilt: provision again, it begins anew",
            )

    def _connected(self, tenant: Tenant) -> HetznerApi:
        if self._api is None:
            self._api = HetznerApi(self._token(), self._settings, self._clock, self._tell, where=tenant.slug)
        return self._api

    def _options(self, tenant: Tenant) -> Options:
        return Options.of(tenant, self._settings)


def _server(server: BoundServer) -> Server:
    return Server(str(server.name), _addresses(server), server.status == BoundServer.STATUS_RUNNING)


def _addresses(server: BoundServer) -> tuple[str, ...]:
    """The public addresses; Hetzner reports IPv6 as the network that the server has."""
    network = server.public_net
    found = (network.ipv4, network.ipv6) if network else ()
    return tuple(address.ip for address in found if address is not None)
