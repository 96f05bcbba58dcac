"""Routes of environments: one object each in the front's configuration, found by its id.

A route is made in one request with its label in it, so there is never one without. Two writers cannot lose each
other's route: each change holds for the one configuration that it was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from engine.environments.drivers.base import CreateRequest, Kind, Owned, RouteContent
from engine.environments.drivers.front_admin import ROUTES, FrontAdmin, Missing, Outdated, Read
from engine.environments.drivers.trouble import INCOMPLETE, Effects, ProviderTrouble, Trouble
from engine.environments.names import Owner, names_of, uuid_of
from engine.environments.observation import Absent, Label, Mark, Observation, Present, read_label
from engine.errors import DriverRefused, UnknownState
from engine.registry.formats import plain_hostname

SETTLE_SECONDS = 2.0

TRIES = 200
"""How often a change is begun anew because another writer was first. Each time one of them got through."""

GATEWAY_PATHS = ("/api/*", "/health")

UNMATCHED = {"@id": "unmatched", "handle": [{"handler": "static_response", "status_code": 404}]}
"""The last route: a front without it answers any other host with an empty page and 200."""

_LABEL = "tenantry"


@dataclass(frozen=True)
class _Change:
    """One change of the list of routes: the object at `index` goes, or `route` comes before it."""

    method: str
    index: int
    route: object = None


class CaddyRoutes:
    """The kind route."""

    kind = Kind.ROUTE

    def __init__(self, admin: FrontAdmin, settle_seconds: float = SETTLE_SECONDS) -> None:
        self.settle_seconds = settle_seconds
        self._admin = admin

    def name(self, uuid: str) -> str:
        return names_of(uuid).route

    def observe(self, name: str) -> Observation:
        try:
            return _observation(name, self._admin.read(f"/id/{name}").value)
        except Missing:
            return Absent()
        except ProviderTrouble as trouble:
            return trouble.unknown

    def create(self, request: CreateRequest) -> Observation:
        """Make the route, the last one before that of unmatched hosts."""
        effects = Effects(self.kind, request.name)
        content = request.route
        if content is None or not content.hosts:
            raise DriverRefused("a route needs host names and two machines", where=f"{self.kind} {request.name}")
        label = Label(self.kind, request.mark, request.digest)

        def insert(routes: list[Any]) -> _Change | None:
            found = _with_id(routes, request.name)
            if found:
                if any(_label(routes[index]) != label for index in found):
                    raise effects.refuse(Trouble.FOREIGN)
                return None
            if not {plain_hostname(host) for host in content.hosts}.isdisjoint(_hosts(routes)):
                raise effects.refuse(Trouble.HOST_TAKEN)
            return _Change("PUT", len(routes) - 1, _route(request.name, label, content))

        self._change(insert, effects)
        return self.observe(request.name)

    def delete(self, name: str, mark: Mark) -> None:
        effects = Effects(self.kind, name)

        def remove(routes: list[Any]) -> _Change | None:
            found = _with_id(routes, name)
            labels = [_label(routes[index]) for index in found]
            if any(label is None or label.mark != mark for label in labels):
                raise effects.refuse(Trouble.FOREIGN)
            return _Change("DELETE", found[0]) if found else None

        self._change(remove, effects)

    def list_owned(self) -> tuple[Owned, ...]:
        try:
            configuration = self._admin.read("/config/").value
        except ProviderTrouble as trouble:
            raise UnknownState(str(trouble.word), where=f"list of kind {self.kind}") from None
        found = ((str(each["@id"]), _label(each)) for each in _objects(configuration) if _is_route(each.get("@id")))
        return tuple(Owned(name, label.mark) for name, label in found if label is not None)

    def _change(self, decide: Callable[[list[Any]], _Change | None], effects: Effects) -> None:
        """Do what `decide` wants of the routes as they are; raises what the contract of a driver says."""
        try:
            for _ in range(TRIES):
                read = self._admin.read(ROUTES)
                change = decide(_routes(read))
                if change is None:
                    return
                effects.begin()
                try:
                    self._admin.change(change.method, f"{ROUTES}/{change.index}", read, change.route)
                except Outdated:
                    effects.undone()
                else:
                    return
        except ProviderTrouble as trouble:
            raise effects.error(trouble) from None
        raise effects.refuse(Trouble.TOO_MANY)


def _routes(read: Read) -> list[Any]:
    """The routes that were read; nothing is put into a front that would answer whatever host it is asked for."""
    if not isinstance(read.value, list) or not read.value or read.value[-1] != UNMATCHED:
        raise ProviderTrouble(Trouble.UNEXPECTED)
    return read.value


def _route(name: str, label: Label, content: RouteContent) -> dict[str, Any]:
    """The whole route."""
    gateway = {"match": [{"path": list(GATEWAY_PATHS)}], "handle": [_to(content.gateway)]}
    return {
        "@id": name,
        "match": [{"host": list(content.hosts)}],
        "handle": [
            {"handler": "vars", _LABEL: label.text()},
            {"handler": "subroute", "routes": [gateway, {"handle": [_to(content.web)]}]},
        ],
        "terminal": True,
    }


def _to(address: str) -> dict[str, Any]:
    return {"handler": "reverse_proxy", "upstreams": [{"dial": address}]}


def _observation(name: str, route: Any) -> Observation:
    if not isinstance(route, dict) or route.get("@id") != name:
        raise ProviderTrouble(Trouble.UNREADABLE)
    label, content = _label(route), _content(route)
    if label is None:
        return Present(f"route:{name}", INCOMPLETE, None)
    whole = content is not None and route == _route(name, label, content)
    return Present(f"route:{name}", label.digest if whole else INCOMPLETE, label.mark)


def _label(route: Any) -> Label | None:
    """The label in a route, which only its first handler can hold."""
    try:
        text = route["handle"][0][_LABEL]
    except (KeyError, IndexError, TypeError):
        return None
    label = read_label(text) if isinstance(text, str) else None
    return label if label is not None and label.kind == Kind.ROUTE else None


def _content(route: dict[str, Any]) -> RouteContent | None:
    """What a route holds, where it has that at all."""
    try:
        gateway, web = (each["handle"][0]["upstreams"][0]["dial"] for each in route["handle"][1]["routes"])
        return RouteContent(tuple(route["match"][0]["host"]), gateway, web)
    except (KeyError, IndexError, TypeError, ValueError):
        return None


def _with_id(routes: list[Any], name: str) -> list[int]:
    """Where the routes with this id are: Caddy takes several, and finds one of them by it."""
    return [index for index, route in enumerate(routes) if isinstance(route, dict) and route.get("@id") == name]


def _hosts(routes: list[Any]) -> set[str]:
    """Every host that one of the routes answers for, as plain names: the front takes each spelling for the same."""
    matchers = [each for each in _objects(routes) if isinstance(each.get("host"), list)]
    return {plain_hostname(host) for matcher in matchers for host in matcher["host"] if isinstance(host, str)}


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a part of the configuration."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inner)


def _is_route(name: object) -> bool:
    uuid = uuid_of(name) if isinstance(name, str) else None
    return uuid is not None and any(names_of(uuid, owner).route == name for owner in Owner)
