"""Routes of environments, in Caddy itself, before two real servers as their machines."""

from __future__ import annotations

import signal
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.environments.drivers.base import CreateRequest, RouteContent
from engine.environments.drivers.front_admin import ROUTES, FrontAdmin
from engine.environments.drivers.routes import UNMATCHED, CaddyRoutes
from engine.environments.drivers.trouble import INCOMPLETE
from engine.environments.names import names_of
from engine.environments.observation import Absent, Mark, Present, Unknown
from engine.environments.parents.front import FrontSeen, FrontService
from engine.environments.parents.programs import FRONT_PROGRAM, digest_of
from engine.errors import DispatchLost, DriverRefused, Refused, UnknownState
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.network import LabNames, lab_id
from tests.lab.environments.conftest import DIGEST
from tests.lab.environments.faults import HttpProxy
from tests.lab.environments.listening import listening_elsewhere
from tests.lab.waiting import until

FAULTS = {
    "refused": "unreachable",
    "401": "credentialRefused",
    "403": "denied",
    "404": "unexpectedAnswer",
    "bare 404": "unexpectedAnswer",
    "408": "timedOut",
    "412": "unexpectedAnswer",
    "429": "tooMany",
    "500": "providerFailed",
    "503": "providerFailed",
    "cut": "connectionLost",
    "hang": "timedOut",
    "half": "connectionLost",
    "torn": "unreadable",
    "empty": "unreadable",
    "late": "connectionLost",
}


@dataclass(frozen=True)
class Site:
    """An environment of which only the route matters."""

    gateway: str = "127.0.0.1:9"
    web: str = "127.0.0.1:9"
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def name(self) -> str:
        return names_of(self.uuid).route

    @property
    def host(self) -> str:
        return f"{self.uuid}.example.org"

    @property
    def mark(self) -> Mark:
        return Mark(self.uuid, "intent-1")

    @property
    def request(self) -> CreateRequest:
        content = RouteContent((self.host, f"www.{self.host}"), self.gateway, self.web)
        return CreateRequest(self.uuid, "intent-1", self.name, DIGEST, route=content)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontService]:
    directory = tmp_path_factory.mktemp("front")
    service = FrontService(directory, LabNames(lab_id(directory)).group)
    service.ensure(Commands())
    yield service
    service.shut_down()


@pytest.fixture
def routes(front: FrontService) -> CaddyRoutes:
    return CaddyRoutes(front.admin)


@pytest.fixture(scope="module")
def site() -> Iterator[Callable[[], Site]]:
    """Makes environments whose two machines answer with their names and the path that they were asked for."""
    with _server("gateway") as gateway, _server("web") as web:
        yield lambda: Site(gateway, web)


def test_a_request_goes_by_its_host_and_path(front: FrontService, routes: CaddyRoutes, site: Callable[[], Site]):
    first, second = site(), replace(site(), gateway="127.0.0.1:9")
    for each in (first, second):
        seen = routes.create(each.request)
        assert seen == Present(f"route:{each.name}", DIGEST, each.mark)
        assert routes.observe(each.name) == routes.create(each.request) == seen
    for host in (first.host, f"www.{first.host}", f"{first.host}:8080", first.host.upper()):
        assert _asked(front, host, "/api/notes?q=1") == (200, "gateway /api/notes?q=1")
    expected = {"/health": "gateway", "/healthy": "web", "/": "web", "/api": "web", "/app/api/x": "web"}
    assert {path: _asked(front, first.host, path)[1].split()[0] for path in expected} == expected
    assert _asked(front, second.host, "/api/")[0] == 502
    assert _asked(front, second.host, "/") == (200, "web /")
    for host in ("127.0.0.1", "example.org", f"x.{first.host}"):
        assert _asked(front, host, "/")[0] == 404
    assert {(each.name, each.mark) for each in routes.list_owned()} >= {(s.name, s.mark) for s in (first, second)}
    for _ in range(2):
        routes.delete(first.name, first.mark)
        assert routes.observe(first.name) == Absent()
    assert _asked(front, first.host, "/")[0] == 404
    assert _asked(front, second.host, "/")[0] == 200


def test_a_route_without_our_label_is_never_adopted_or_deleted(front: FrontService, routes: CaddyRoutes):
    labels = (None, "somebody's", "tenantry:1/bucket/u/i/d", "tenantry:1/route/u/i/d/more", 7)
    for label in labels:
        site = Site()
        handle: list[Any] = [{"handler": "vars", "tenantry": label}] if label is not None else []
        _insert(front, {"@id": site.name, "match": [{"host": [site.host]}], "handle": handle})
        _is_left_alone(front, routes, site, mark=None)
    other = Site()
    routes.create(replace(other.request, intent_id="intent-2"))
    _is_left_alone(front, routes, other, mark=Mark(other.uuid, "intent-2"))
    # Caddy takes two routes with one id: whose they are is not decided by the one that it shows.
    for own_first in (True, False):
        twice = Site()
        if own_first:
            routes.create(twice.request)
        _insert(front, {"@id": twice.name, "handle": []})
        if not own_first:
            assert isinstance(routes.observe(twice.name), Present)
        _refuses(routes, twice)


def test_a_route_that_was_changed_is_ours_but_not_as_it_was_made(front: FrontService, routes: CaddyRoutes):
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda route: route.pop("terminal"),
        lambda route: route["match"].append({"host": ["more.example.org"]}),
        lambda route: route["match"][0].update(path=["/only"]),
        lambda route: route["handle"][1]["routes"].pop(),
        lambda route: route["handle"][1]["routes"][0]["handle"][0]["upstreams"].append({"dial": "127.0.0.1:1"}),
        lambda route: route["handle"][1]["routes"].insert(0, {"handle": []}),
        lambda route: route["handle"].append({"handler": "static_response"}),
        lambda route: route.pop("match"),
    ]
    for change in changes:
        site = Site()
        routes.create(site.request)
        route = front.admin.read(f"/id/{site.name}").value
        change(route)
        routes.delete(site.name, site.mark)
        _insert(front, route)
        assert routes.observe(site.name) == Present(f"route:{site.name}", INCOMPLETE, site.mark)
        routes.delete(site.name, site.mark)
        assert routes.observe(site.name) == Absent()


def test_a_host_that_another_route_has_and_a_request_without_hosts_are_refused(routes: CaddyRoutes):
    site, other = Site(), Site()
    routes.create(site.request)
    for taken in (f"www.{site.host}", f"WWW.{site.host.upper()}."):
        content = RouteContent((other.host, taken), site.gateway, site.web)
        with pytest.raises(DriverRefused, match="hostTaken"):
            routes.create(replace(other.request, route=content))
    for nothing in (None, replace(content, hosts=())):
        with pytest.raises(DriverRefused, match="host names"):
            routes.create(replace(other.request, route=nothing))
    assert routes.observe(other.name) == Absent()


def test_writers_at_the_same_time_do_not_lose_each_others_routes(front: FrontService):
    made: list[Site] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            routes = CaddyRoutes(front.admin)
            for number in range(6):
                site = Site()
                routes.create(site.request)
                if number % 2:
                    routes.delete(site.name, site.mark)
                else:
                    made.append(site)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    routes = CaddyRoutes(front.admin)
    assert len(made) == 18
    assert all(routes.observe(site.name).mark == site.mark for site in made)
    configured = front.admin.read(ROUTES).value
    assert configured[-1] == UNMATCHED
    ids = [route["@id"] for route in configured]
    assert [ids.count(site.name) for site in made] == [1] * len(made)


def test_a_restart_resumes_the_routes(front: FrontService, routes: CaddyRoutes, site: Callable[[], Site]):
    mine = site()
    routes.create(mine.request)
    before = front.admin.read("/config/").value
    assert front.observe() == FrontSeen(digest_of(FRONT_PROGRAM), closed=True)
    assert not front.ensure(Commands())
    for number in (signal.SIGKILL, signal.SIGTERM):
        record = front.record()
        assert record is not None
        assert record.process is not None
        record.process.signal(number)
        until(lambda record=record: record.process is None, "the front has ended")  # type: ignore[misc]
        assert front.observe() == Unknown("notRunning")
        assert isinstance(routes.observe(mine.name), Unknown)
        with pytest.raises(DriverRefused, match=r"unreachable|connectionLost"):
            routes.delete(mine.name, mine.mark)
        assert front.ensure(Commands())
        assert front.admin.read("/config/").value == before
        assert _asked(front, mine.host, "/api/x") == (200, "gateway /api/x")


def test_what_a_crash_left_of_the_saved_routes_is_refused(tmp_path: Path):
    front = FrontService(tmp_path / "front", LabNames(lab_id(tmp_path)).group)
    front.service.make_directory(".config", "caddy")
    saved = front.service.directory / ".config/caddy/autosave.json"
    for content in (b"", b"null", b'{"apps": {"http": {"servers"'):
        saved.write_bytes(content)
        with pytest.raises(Refused, match=r"remove the file"):
            front.ensure(Commands())
        assert front.observe() == Unknown("notRunning")


def test_a_front_that_would_answer_any_host_is_seen_and_not_used(front: FrontService, routes: CaddyRoutes):
    site = Site()
    last = len(front.admin.read(ROUTES).value) - 1
    front.admin.change("DELETE", f"{ROUTES}/{last}", front.admin.read(ROUTES))
    try:
        assert front.observe() == FrontSeen(digest_of(FRONT_PROGRAM), closed=False)
        with pytest.raises(DriverRefused, match="unexpectedAnswer"):
            routes.create(site.request)
    finally:
        front.admin.change("POST", ROUTES, front.admin.read(ROUTES), UNMATCHED)
    assert routes.observe(site.name) == Absent()


def test_only_root_and_the_front_itself_reach_the_admin_api(front: FrontService):
    record = front.record()
    assert record is not None
    assert front.service.directory.stat().st_mode & 0o077 == 0
    status = Path(f"/proc/{record.pid}/status").read_text()
    fields = {line.split(":")[0]: line.split()[1:] for line in status.splitlines()}
    assert "0" not in fields["Uid"]
    assert {fields[name][0] for name in ("CapEff", "CapPrm", "CapBnd", "CapAmb")} == {"0" * 16}
    assert set(record.ports) == {"http"}
    assert listening_elsewhere(set(record.ports.values())) == set()
    assert _listening(record.pid) == set(record.ports.values())
    for host, origin in (("localhost", "http://front-admin.internal"), ("front-admin.internal", "http://evil.example")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(front.service.directory / "admin.sock"))
            connection.sendall(f"GET /config/ HTTP/1.0\r\nHost: {host}\r\nOrigin: {origin}\r\n\r\n".encode())
            assert b" 403 " in connection.recv(100)


@pytest.mark.parametrize(("fault", "word"), FAULTS.items())
def test_trouble_with_the_front_is_never_absent_and_never_sent_twice(
    front: FrontService, routes: CaddyRoutes, fault: str, word: str
):
    present = Site()
    routes.create(present.request)
    with _broken(front, fault) as (broken, _):
        for site in (present, Site()):
            assert broken.observe(site.name) == Unknown(word)
        with pytest.raises(UnknownState, match=word):
            broken.list_owned()
    sent = {"create": 0, "delete": 0}
    for job in ("create", "delete"):
        for at in range(1, 4):
            site = Site()
            if job == "delete":
                routes.create(site.request)
            before = _count(front)
            with _broken(front, fault, at) as (broken, proxy):
                outcome = _outcome(lambda b=broken, s=site, j=job: _do(b, j, s))
                sent[job] = max(sent[job], len(proxy.changes))
            assert len(proxy.changes) <= 1
            after = _count(front)
            assert after - before in ((0, 1) if job == "create" else (0, -1))
            seen = routes.observe(site.name)
            assert seen in (Absent(), Present(f"route:{site.name}", DIGEST, site.mark))
            if outcome is DriverRefused:
                assert after == before
            if isinstance(outcome, Present):
                assert outcome == seen
            if at == 1:
                assert outcome is DriverRefused
            routes.delete(site.name, site.mark)
    assert sent == {"create": 1, "delete": 1}


def test_a_change_that_was_made_for_another_configuration_is_begun_anew_without_being_done(
    front: FrontService, routes: CaddyRoutes
):
    site, other = Site(), Site()
    with _broken(front, "") as (broken, proxy):
        proxy.before = lambda: routes.create(other.request)
        broken.create(site.request)
        assert [method for method, _ in proxy.changes] == ["PUT", "PUT"]
    assert [route["@id"] for route in front.admin.read(ROUTES).value][-3:] == [other.name, site.name, "unmatched"]


class ChangesProxy(HttpProxy):
    """Notes which changes arrive at the front; calls `before` at the first."""

    def __post_init__(self) -> None:
        self.changes: list[tuple[str, str]] = []
        self.before: Callable[[], object] = lambda: None
        super().__post_init__()

    def _forward(self, request: bytes) -> bytes:
        method, path, _ = request.split(b"\r\n", 1)[0].decode().split(" ")
        if method != "GET":
            self.changes.append((method, path))
            before, self.before = self.before, lambda: None
            before()
        return super()._forward(request)


@contextmanager
def _broken(front: FrontService, fault: str, at: int = 0) -> Iterator[tuple[CaddyRoutes, ChangesProxy]]:
    assert front.admin.socket is not None
    proxy = ChangesProxy(front.admin.socket, fault=fault, at=at)
    try:
        yield (
            CaddyRoutes(FrontAdmin(address=f"127.0.0.1:{proxy.port}", answer_seconds=1 if fault == "hang" else 30)),
            proxy,
        )
    finally:
        proxy.stop()


def _do(routes: CaddyRoutes, job: str, site: Site) -> object:
    return routes.create(site.request) if job == "create" else routes.delete(site.name, site.mark)


def _outcome(call: Callable[[], object]) -> object:
    """What it returns, or the class of the error that it raises."""
    try:
        return call()
    except (DispatchLost, DriverRefused) as error:
        assert "secret words" not in str(error)
        return type(error)


def _count(front: FrontService) -> int:
    return len(front.admin.read(ROUTES).value)


def _insert(front: FrontService, route: object) -> None:
    front.admin.change("PUT", f"{ROUTES}/0", front.admin.read(ROUTES), route)


def _is_left_alone(front: FrontService, routes: CaddyRoutes, site: Site, mark: Mark | None) -> None:
    before = front.admin.read(ROUTES).value
    seen = routes.observe(site.name)
    assert isinstance(seen, Present)
    assert seen.mark == mark
    _refuses(routes, site)
    assert front.admin.read(ROUTES).value == before
    assert [each for each in routes.list_owned() if each.name == site.name and each.mark == site.mark] == []


def _refuses(routes: CaddyRoutes, site: Site) -> None:
    for job in ("create", "delete"):
        with pytest.raises(DriverRefused, match="foreignResource"):
            _do(routes, job, site)


def _asked(front: FrontService, host: str, path: str) -> tuple[int, str]:
    answer = httpx.get(front.url + path, headers={"Host": host}, trust_env=False, timeout=10)
    return answer.status_code, answer.text


@contextmanager
def _server(name: str) -> Iterator[str]:
    """A server that answers with its name and the path; yields its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{name} {self.path}".encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _listening(pid: int | None) -> set[int]:
    """The TCP ports that a process listens on."""
    links = Path(f"/proc/{pid}/fd").iterdir()
    inodes = {str(link.readlink()).removeprefix("socket:[").removesuffix("]") for link in links if link.is_symlink()}
    found = set()
    for file in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{file}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found
