"""A local server that speaks the part of Hetzner Cloud's API that the driver uses, with lab hosts behind it.

A rebuild really gives the host an empty disk and boots it with the user-data of the call. Answers can be
ordered in advance, as the real service gives them: errors, a rate limit, an action that fails.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from engine.provision.providers.lab import HostSpec, Lab

TOKEN = "hetzner-token-of-the-tests-0123456789"

ERRORS = {
    401: ("unauthorized", "unable to authenticate"),
    403: ("forbidden", "insufficient permissions for this request"),
    404: ("not_found", "server not found"),
    409: ("conflict", "the resource has changed during the request, please retry"),
    423: ("locked", "the server is locked by another action"),
    429: ("rate_limit_exceeded", "limit of 3600 requests per hour reached"),
    503: ("service_error", "service unavailable"),
}


@dataclass
class Ordered:
    """An answer that the next `times` calls of `method` whose path has `part` get instead of the real one."""

    method: str
    part: str
    status: int
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    code: str = ""
    done_first: bool = False
    """Whether the work is done all the same, and only its answer is lost."""


@dataclass
class FakeServer:
    id: int
    name: str
    slug: str
    ipv4: str | None
    ipv6: str | None = None
    status: str = "running"
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class FakeHetzner:
    """The service's state. `calls` lists ``METHOD path`` of every request that came with the right token."""

    lab: Lab
    servers: dict[int, FakeServer] = field(default_factory=dict)
    actions: dict[int, dict[str, Any]] = field(default_factory=dict)
    ordered: list[Ordered] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    user_data: list[str] = field(default_factory=list)
    url: str = ""
    failing_actions: int = 0
    before_rebuild: Callable[[], None] | None = None
    """Runs after a rebuild was reported as done and before the host is touched: the slow rebuild."""
    rebuilds_nothing: bool = False
    """Reports rebuilds as done and leaves the old machine as it is."""

    def add(self, name: str, slug: str, ipv4: str | None, ipv6: str | None = None) -> FakeServer:
        server = FakeServer(len(self.servers) + 4711, name, slug, ipv4, ipv6)
        self.servers[server.id] = server
        return server

    def order(self, method: str, part: str, status: int, **more: Any) -> None:
        self.ordered.append(Ordered(method, part, status, **more))

    def made(self, method: str, part: str) -> int:
        """How many calls of `method` to a path with `part` came."""
        return sum(call.startswith(f"{method} ") and part in call for call in self.calls)

    @contextmanager
    def serving(self) -> Iterator[FakeHetzner]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    # The service

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: dict[str, Any]) -> tuple[int, Any]:
        match method, path.strip("/").split("/")[1:]:
            case "GET", ["servers"]:
                names = query.get("name")
                found = [server for server in self.servers.values() if not names or server.name in names]
                return 200, {"servers": [_document(server) for server in found], "meta": _meta(len(found))}
            case "POST", ["servers"]:
                return 201, self._create(body)
            case "DELETE", ["servers", number]:
                server = self.servers.pop(int(number))
                return 200, {"action": self._begin("delete_server", server, lambda: self.lab.destroy([server.slug]))}
            case "POST", ["servers", number, "actions", "rebuild"]:
                return 201, self._rebuild(self.servers[int(number)], body)
            case "GET", ["actions", number]:
                return 200, {"action": self.actions[int(number)]}
        return 404, _error(404)

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        slug = body["name"]
        self.user_data.append(body["user_data"])
        (host,) = self.lab.up([HostSpec(slug, body["user_data"], "ops")])
        server = self.add(body["name"], slug, host.address)
        server.labels = body.get("labels", {})
        action = self._begin("create_server", server, lambda: None)
        return {"server": _document(server), "action": action, "next_actions": [], "root_password": None}

    def _rebuild(self, server: FakeServer, body: dict[str, Any]) -> dict[str, Any]:
        assert body["image"], body
        self.user_data.append(body["user_data"])
        spec = HostSpec(server.slug, body["user_data"], "ops")
        if self.rebuilds_nothing:
            return {"action": self._begin("rebuild_server", server, lambda: None), "root_password": "unused"}
        if self.before_rebuild:
            wait = self.before_rebuild

            def later() -> None:
                wait()
                self.lab.rebuild(spec)

            threading.Thread(target=later, daemon=True).start()
            return {"action": self._begin("rebuild_server", server, lambda: None), "root_password": "unused"}
        return {
            "action": self._begin("rebuild_server", server, lambda: self.lab.rebuild(spec)),
            "root_password": "unused",
        }

    def _begin(self, command: str, server: FakeServer, work: Callable[[], Any]) -> dict[str, Any]:
        number = len(self.actions) + 1
        action: dict[str, Any] = {
            "id": number,
            "command": command,
            "status": "running",
            "progress": 0,
            "started": "2026-10-22T08:00:00+00:00",
            "finished": None,
            "resources": [{"id": server.id, "type": "server"}],
            "error": None,
        }
        self.actions[number] = action
        if self.failing_actions:
            self.failing_actions -= 1
            threading.Thread(target=self._fail, args=(action,), daemon=True).start()
        else:
            threading.Thread(target=self._finish, args=(action, work), daemon=True).start()
        return dict(action)

    def _finish(self, action: dict[str, Any], work: Callable[[], Any]) -> None:
        work()
        action.update(status="success", progress=100, finished="2026-10-22T08:00:09+00:00")

    def _fail(self, action: dict[str, Any]) -> None:
        error = {"code": "action_failed", "message": "the image could not be written"}
        action.update(status="error", finished="2026-10-22T08:00:09+00:00", error=error)


def _handler(service: FakeHetzner) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._serve()

        do_POST = do_DELETE = do_GET

        def _serve(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            split = urlsplit(self.path)
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                self._reply(401, _error(401))
                return
            service.calls.append(f"{self.command} {self.path}")
            ordered = next((o for o in service.ordered if o.method == self.command and o.part in split.path), None)
            if ordered is None:
                self._reply(*service.answer(self.command, split.path, parse_qs(split.query), body))
                return
            ordered.times -= 1
            if not ordered.times:
                service.ordered.remove(ordered)
            if ordered.done_first:
                service.answer(self.command, split.path, parse_qs(split.query), body)
            self._reply(ordered.status, _error(ordered.status, ordered.code), ordered.headers)

        def _reply(self, status: int, document: Any, headers: dict[str, str] | None = None) -> None:
            content = json.dumps(document).encode()
            self.send_response(status)
            for name, value in {"RateLimit-Limit": "3600", "RateLimit-Remaining": "0", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing to standard error: the calls are kept."""

    return Handler


def _error(status: int, code: str = "") -> dict[str, Any]:
    default, message = ERRORS[status]
    return {"error": {"code": code or default, "message": message, "details": None}}


def _document(server: FakeServer) -> dict[str, Any]:
    def address(text: str | None, number: int) -> dict[str, Any] | None:
        return text and {"id": number, "ip": text, "blocked": False, "dns_ptr": []}

    return {
        "id": server.id,
        "name": server.name,
        "status": server.status,
        "created": "2026-10-22T07:00:00+00:00",
        "public_net": {
            "ipv4": address(server.ipv4, server.id * 10),
            "ipv6": address(server.ipv6, server.id * 10 + 1),
            "floating_ips": [],
            "firewalls": [],
        },
        "labels": server.labels,
        "locked": False,
        "private_net": [],
        "volumes": [],
    }


def _meta(count: int) -> dict[str, Any]:
    page = {"page": 1, "per_page": 50, "previous_page": None, "next_page": None}
    return {"pagination": {**page, "last_page": 1, "total_entries": count}}
