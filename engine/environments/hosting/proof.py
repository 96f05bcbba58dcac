"""The proof that an environment serves, seen from where its visitors come."""

from __future__ import annotations

from http import HTTPStatus

import httpx

from engine.environments.drivers.base import Kind
from engine.environments.hosting.requests import PORT, host_of
from engine.environments.hosting.workspace import Hosting
from engine.environments.spec import Specification
from engine.environments.words import Fault
from engine.errors import LivenessFailed

POLL_SECONDS = 0.25
ANSWER_SECONDS = 5.0


def prove_serving(hosting: Hosting, spec: Specification) -> None:
    """Return once the front passes a visitor on to this very environment, and both machines can use their stores.

    Raises :class:`LivenessFailed` with the last answer after ``environments.serve_seconds``.
    """
    deadline = hosting.clock.monotonic() + hosting.settings.serve_seconds
    while (wrong := _wrong(hosting, spec)) is not None:
        if hosting.clock.monotonic() > deadline:
            raise LivenessFailed(
                f"{Fault.NOT_SERVING}: {wrong}",
                where=f"environment {spec.uuid}",
                hint="`tenantry lab list` shows its machines, whose console logs say more; then converge again",
            )
        hosting.clock.sleep(POLL_SECONDS)


def _wrong(hosting: Hosting, spec: Specification) -> str | None:
    """What is wrong, None if gateway and web both give the right answer."""
    host = host_of(hosting, spec)
    # The front leads to the gateway's health; the web machine's is nobody else's business, and asked there.
    web = f"{hosting.machines(Kind.WEB).address(spec.name(Kind.WEB))}:{PORT}"
    return _wrong_at(hosting.front_url, host, spec) or _wrong_at(f"http://{web}", web, spec)


def _wrong_at(url: str, host: str, spec: Specification) -> str | None:
    try:
        # Plain HTTP: there is nothing to verify.
        answer = httpx.get(
            f"{url}/health", headers={"Host": host}, timeout=ANSWER_SECONDS, trust_env=False, verify=False
        )
    except httpx.HTTPError as error:
        return f"{host} gives no answer ({type(error).__name__})"
    if answer.status_code != HTTPStatus.OK:
        return f"{host} answers with status {answer.status_code}"
    try:
        content = answer.json()
        found = (content["environment"], content["specification"])
    except (ValueError, KeyError, TypeError):
        return f"{host} answers with something else"
    return None if found == (spec.uuid, spec.digest) else f"another environment answers for {host}"
