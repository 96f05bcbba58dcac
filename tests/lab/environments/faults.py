"""Small real proxies in front of the parents that break one call, in one of the ways in which networks do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

LOOPBACK = "127.0.0.1"
ERROR = b"<?xml version='1.0'?><Error><Code>%b</Code><Message>secret words of the provider</Message></Error>"


@dataclass
class Proxy:
    """Listens on a port of its own and hands each connection to `serve`, until `stop`."""

    upstream: int | Path
    held: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listen(0)

    def listen(self, port: int) -> None:
        """Take connections on `port`, or on any that is free."""
        self.listener = socket.create_server((LOOPBACK, port))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def stop(self) -> None:
        self.refuse()
        for each in self.held:
            each.close()

    def refuse(self) -> None:
        """Take no more connections: from now on they are refused."""
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def connect(self) -> socket.socket:
        """A connection to what is behind the proxy."""
        if isinstance(self.upstream, int):
            return socket.create_connection((LOOPBACK, self.upstream))
        upstream = socket.socket(socket.AF_UNIX)
        upstream.connect(str(self.upstream))
        return upstream

    def serve(self, client: socket.socket) -> None:
        raise NotImplementedError

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError):
            self.serve(client)


@dataclass
class HttpProxy(Proxy):
    """Breaks request number `at` (from 1; 0 for every one) with `fault`: a status, or a word below."""

    fault: str = ""
    at: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fault == "refused" and self.at in (0, 1):
            self.refuse()

    def due(self, call: str) -> str:
        """The fault of the call that comes in now."""
        self.seen += 1
        if self.fault == "refused" and self.seen == self.at - 1:
            self.refuse()
        return self.fault if self.at in (0, self.seen) and self.fault != "refused" else ""

    def serve(self, client: socket.socket) -> None:
        with client:
            request = _http_request(client)
            if not request:
                return
            fault = self.due(request.partition(b" HTTP")[0].decode())
            if fault == "hang":
                self.held.append(client.dup())
                return
            if fault == "cut":
                return
            if fault.isdecimal():
                client.sendall(_answer(fault.encode(), ERROR % b"NoSuchThing"))
                return
            if fault == "bare 404":
                client.sendall(_answer(b"404", b""))
                return
            if fault == "empty":
                client.sendall(_answer(b"200", b""))
                return
            answer = self._forward(request)
            if fault == "late":
                return
            # Half an answer with its connection cut, or one that claims to be whole.
            head, _, body = answer.partition(b"\r\n\r\n")
            if fault == "half":
                answer = answer[: len(head) + 4 + len(body) // 2]
            if fault == "torn":
                answer = _answer(b"200", body[: len(body) // 2] or b"<?xml version='1.0'?><Li")
            client.sendall(answer)

    def _forward(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        with self.connect() as upstream:
            upstream.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
            return _rest(upstream)


@dataclass
class PostgresProxy(Proxy):
    """Does `fault` (cut, hang, or late: the answer never arrives) at the first message that holds `word`, once."""

    fault: str = ""
    word: bytes = b""
    before: Callable[[], None] = lambda: None

    def serve(self, client: socket.socket) -> None:
        upstream = self.connect()
        self.held += [client, upstream]
        answers = Answers(upstream, client)
        while data := client.recv(65536):
            if self.word and self.word in data:
                self.word = b""
                self.before()
                if self.fault == "cut":
                    end(client, upstream)
                    return
                if self.fault == "hang":
                    return
                if self.fault == "late":
                    # Done at the server, which says so to nobody.
                    answers.withheld = True
                    upstream.sendall(data)
                    answers.done.wait()
                    end(client, upstream)
                    return
            upstream.sendall(data)
        end(upstream)


@dataclass
class Answers:
    """Passes on what the server says, until it is `withheld`; `done` says that it said something then, or ended."""

    source: socket.socket
    target: socket.socket
    withheld: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        threading.Thread(target=self._pass_on, daemon=True).start()

    def _pass_on(self) -> None:
        with suppress(OSError):
            while (data := self.source.recv(65536)) and not self.withheld:
                self.target.sendall(data)
        self.done.set()
        if not self.withheld:
            end(self.target)


def _http_request(client: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    missing = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while missing > 0:
        piece = client.recv(65536)
        data, missing = data + piece, missing - len(piece)
    return data


def _answer(status: bytes, body: bytes) -> bytes:
    return b"HTTP/1.1 %b Word\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (status, len(body), body)


def _rest(connection: socket.socket) -> bytes:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    return data


def end(*connections: socket.socket) -> None:
    for each in connections:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
