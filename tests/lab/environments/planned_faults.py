"""A proxy in front of each parent that stays, and for each job breaks one chosen call in one chosen way."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from tests.lab.environments.faults import Answers, HttpProxy, Proxy, end

HTTP_FAULTS = ("refused", "401", "403", "408", "429", "500", "half", "hang", "late")

OPENING_FAULTS = ("refused", "28P01", "42501", "53300", "57P03", "cut", "hang")
STATEMENT_FAULTS = ("42501", "57P01", "cut", "hang", "late")
POSTGRES_FAULTS = tuple(dict.fromkeys((*OPENING_FAULTS, *STATEMENT_FAULTS)))
"""A state code is what the server says, after which its session ends where it says so while one is opened or ended."""

_SAID = {
    "28P01": b'password authentication failed for user "tenantry"',
    "42501": b"permission denied",
    "53300": b"sorry, too many clients already",
    "57P03": b"the database system is shutting down",
    "57P01": b"terminating connection due to administrator command",
}
_SSL, _GSS = 80877103, 80877104


@dataclass
class Planned(Proxy):
    """Numbers the calls of a job from 1, breaks number `at` with `fault`, and keeps what was passed on."""

    fault: str = ""
    at: int = 0
    calls: list[str] = field(default_factory=list)
    passed_on: list[bytes] = field(default_factory=list)
    broken: bool = False

    def plan(self, fault: str = "", at: int = 0) -> None:
        """Begin a job: forget what was, and break call `at`."""
        self.fault, self.at, self.broken = fault, at, False
        self.calls.clear()
        if fault == "refused" and at == 1:
            self.refuse()

    def end_plan(self) -> None:
        """Break nothing more."""
        refused = self.listener.fileno() < 0
        self.broken |= refused and self.fault == "refused"
        self.fault = ""
        if refused:
            self.listen(self.port)

    def arrived(self, *parts: bytes) -> int:
        """How many requests with all of `parts` in them were passed on since the proxy was made."""
        return sum(all(part in request for part in parts) for request in self.passed_on)

    def due(self, call: str) -> str:
        """The fault of the call that comes in now; nothing for most of them."""
        self.calls.append(call)
        number = len(self.calls)
        if self.fault == "refused":
            if number == self.at - 1:
                self.refuse()
            return ""
        if not self.fault or number != self.at:
            return ""
        self.broken = True
        return self.fault


@dataclass
class PlannedHttp(Planned, HttpProxy):
    """The object store's; each request is a call."""

    def _forward(self, request: bytes) -> bytes:
        self.passed_on.append(request)
        return super()._forward(request)


@dataclass
class PlannedPostgres(Planned):
    """PostgreSQL's; each opening of a connection and each statement is a call."""

    def serve(self, client: socket.socket) -> None:
        fault = self.due("open")
        if fault:
            self._break_opening(client, fault)
            return
        with client, self.connect() as upstream:
            answers = Answers(upstream, client)
            if self._pass_on(client, upstream, answers):
                # It stays open, and nothing more is said.
                self.held += [client.dup(), upstream.dup()]
                return
            end(client, upstream)
            answers.done.wait()

    def _pass_on(self, client: socket.socket, upstream: socket.socket, answers: Answers) -> bool:
        """Pass on what a client says until one of them ends it; whether it hangs instead."""
        in_transaction = False
        while data := client.recv(65536):
            if data[:1] not in (b"Q", b"P"):
                upstream.sendall(data)
                continue
            fault = self.due(_statement(data))
            if fault == "hang":
                return True
            if fault == "late":
                # Done at the server, which says so to nobody.
                answers.withheld = True
                self.passed_on.append(data)
                upstream.sendall(data)
                answers.done.wait()
            if fault in ("cut", "late"):
                return False
            if fault:
                ends = fault.startswith("57")
                status = b"E" if in_transaction else b"I"
                client.sendall(_error(fault, ends=ends) + (b"" if ends else _message(b"Z", status)))
                if ends:
                    return False
                continue
            in_transaction = _in_transaction(data, in_transaction)
            self.passed_on.append(data)
            upstream.sendall(data)
        return False

    def _break_opening(self, client: socket.socket, fault: str) -> None:
        self.held.append(client)
        if fault == "hang":
            return
        if fault != "cut":
            while int.from_bytes(client.recv(65536)[4:8], "big") in (_SSL, _GSS):
                client.sendall(b"N")
            client.sendall(_error(fault, ends=True))
        end(client)


def _statement(data: bytes) -> str:
    """The text of a query, or of one that is parsed under no name."""
    text = data[5:] if data[:1] == b"Q" else data[6:]
    return text.partition(b"\0")[0].decode()


def _in_transaction(data: bytes, before: bool) -> bool:
    words = _statement(data).split()
    return {"BEGIN": True, "COMMIT": False, "ROLLBACK": False}.get(words[0].upper(), before) if words else before


def _error(state: str, *, ends: bool) -> bytes:
    severity = b"FATAL" if ends else b"ERROR"
    fields = (b"S" + severity, b"V" + severity, b"C" + state.encode(), b"M" + _SAID[state])
    return _message(b"E", b"".join(each + b"\0" for each in fields) + b"\0")


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + (len(content) + 4).to_bytes(4, "big") + content
