"""Calls to the front's admin API (Caddy's), each sent once, on a connection of its own, and bounded in time.

The API wants no credential: whoever can reach it may change every route. So the front of the lab listens for it at a
socket that only root and the front's own account can reach, and wants to hear its own name besides, which no page in a
browser of this machine can say.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx

from engine.environments.drivers.trouble import ProviderTrouble, Trouble, of_status

NAME = "front-admin.internal"
"""The name that the API answers to; it is nobody's address."""

SERVER = "/config/apps/http/servers/front"
ROUTES = f"{SERVER}/routes"

_SAID_NO = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.CONFLICT)


class Missing(ProviderTrouble):
    """The front said, in its own words, that there is nothing with this id."""

    def __init__(self) -> None:
        super().__init__(Trouble.UNEXPECTED, definite=True)


class Outdated(ProviderTrouble):
    """The front did not do it, because its configuration is not the one that the request was made for."""

    def __init__(self) -> None:
        super().__init__(Trouble.TOO_MANY, definite=True)


@dataclass(frozen=True)
class Read:
    """A part of the configuration, and the condition under which it is still that."""

    value: Any
    condition: str


@dataclass(frozen=True)
class FrontAdmin:
    """Where the admin API is: at `socket`, or without one at `address`, ``host:port``."""

    socket: Path | None = None
    address: str = ""
    connect_seconds: float = 5
    answer_seconds: float = 30

    def read(self, path: str) -> Read:
        """The configuration at `path`; raises `Missing` or another `ProviderTrouble`."""
        answer = self._send("GET", path)
        if answer.status_code != HTTPStatus.OK:
            raise _refusal(answer, path)
        try:
            value = answer.json()
        except ValueError:
            raise ProviderTrouble(Trouble.UNREADABLE) from None
        # Caddy sends the tag behind the body (before 2.8), where the client does not look. It is a checksum of the
        # body, so it can be told; a wrong one would only ever be refused.
        return Read(value, answer.headers.get("ETag") or f'"{path} {_checksum(answer.content):08x}"')

    def change(self, method: str, path: str, read: Read, content: object = None) -> None:
        """Change the configuration if it still is what was `read`; raises `Outdated` or another `ProviderTrouble`."""
        answer = self._send(method, path, {"If-Match": read.condition}, content)
        if answer.status_code != HTTPStatus.OK:
            raise _refusal(answer, path)

    def _send(
        self, method: str, path: str, headers: dict[str, str] | None = None, content: object = None
    ) -> httpx.Response:
        # After each change Caddy ends the connections of its admin API, so none is kept.
        own = {"Host": NAME, "Origin": f"http://{NAME}", "Connection": "close", **(headers or {})}
        body = None if content is None else json.dumps(content).encode()
        own |= {} if body is None else {"Content-Type": "application/json"}
        timeout = httpx.Timeout(self.answer_seconds, connect=self.connect_seconds)
        url = f"http://{NAME if self.socket else self.address}{path}"
        with (
            _troubles(),
            _reached(self.socket) as transport,
            httpx.Client(transport=transport, timeout=timeout, trust_env=False) as client,
        ):
            return client.request(method, url, headers=own, content=body)


@contextmanager
def _reached(socket: Path | None) -> Iterator[httpx.HTTPTransport]:
    """A way to the API; the path of a socket may be longer than the kernel takes."""
    if socket is None:
        yield httpx.HTTPTransport(verify=False)
        return
    try:
        directory = os.open(socket.parent, os.O_PATH | os.O_DIRECTORY)
    except OSError:
        raise ProviderTrouble(Trouble.UNREACHABLE, definite=True) from None
    try:
        yield httpx.HTTPTransport(verify=False, uds=f"/proc/self/fd/{directory}/{socket.name}")
    finally:
        os.close(directory)


@contextmanager
def _troubles() -> Iterator[None]:
    """Turn what the client library raises into `ProviderTrouble`."""
    try:
        yield
    except httpx.ConnectError:
        # Nothing was sent yet.
        raise ProviderTrouble(Trouble.UNREACHABLE, definite=True) from None
    except httpx.TimeoutException:
        raise ProviderTrouble(Trouble.TIMED_OUT) from None
    except httpx.HTTPError:
        raise ProviderTrouble(Trouble.CONNECTION_LOST) from None


def _refusal(answer: httpx.Response, path: str) -> ProviderTrouble:
    """What an answer that is not success means. Another program's does not have the front's own form."""
    try:
        said = answer.json()["error"]
    except (ValueError, KeyError, TypeError):
        said = None
    status = answer.status_code
    if isinstance(said, str):
        if status == HTTPStatus.NOT_FOUND and said == f"unknown object ID '{path.removeprefix('/id/')}'":
            return Missing()
        if status == HTTPStatus.PRECONDITION_FAILED and said.startswith("If-Match header did not match"):
            return Outdated()
    return ProviderTrouble(of_status(status), definite=isinstance(said, str) and status in _SAID_NO)


def _checksum(content: bytes) -> int:
    """FNV-1a of 32 bits."""
    found = 0x811C9DC5
    for byte in content:
        found = (found ^ byte) * 0x01000193 & 0xFFFFFFFF
    return found
