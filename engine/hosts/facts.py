"""The tenant's status as a pyinfra fact, for pyinfra's own CLI."""

from __future__ import annotations

import secrets
from dataclasses import asdict
from enum import Enum
from typing import Any

import pyinfra
from pyinfra.api import FactBase
from pyinfra.api.exceptions import FactProcessError

from engine.errors import TenantryError
from engine.hosts.access import access_from
from engine.hosts.channel import Output
from engine.hosts.plain import one_line
from engine.hosts.probe import Extra, make_script, read_answer
from engine.hosts.scripts import INTERPRETER


class Status(FactBase):  # type: ignore[misc]
    """The probe's answer as one JSON object, or ``{"status": "unknown"}``: never a guess.

    Only for a person at pyinfra's CLI; the engine asks :meth:`engine.hosts.session.Session.probe`.
    """

    def command(self) -> str:
        data = pyinfra.host.data
        access = access_from({key: data.get(key) for key in ("tenantry_fleet", "tenantry_state")})
        self._nonce = secrets.token_hex(8)
        self._settings = access.settings
        tenant = access.tenant(data.get("tenantry_slug"))
        script = make_script(self._nonce, access.settings, tenant, Extra())
        return f"{' '.join(INTERPRETER)} - <<'END-{self._nonce}'\n{script}\nEND-{self._nonce}"

    @staticmethod
    def default() -> dict[str, Any]:
        return {"status": "unknown"}

    def process(self, output: list[str]) -> dict[str, Any]:
        answer = "\n".join([*output, ""]).encode(errors="surrogateescape")
        try:
            status = read_answer(Output(0, answer, b""), self._nonce, self._settings, pyinfra.host.name)
        except TenantryError as error:
            raise FactProcessError(one_line(error)) from error
        document: dict[str, Any] = _plain(asdict(status))
        return document


def _plain(value: Any) -> Any:
    """Enums as their values and versions as text, all the way down."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        if value.keys() == {"text", "key"}:
            return value["text"]
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
