"""Phase B of the light fleet: secrets, the rendered set, the gateway's unit."""

from collections.abc import Mapping

from pyinfra.operations import server

from engine.steps import InvalidInput, StepContext, Tenant
from engine.steps.environment_file import environment_file

IN_ENVIRONMENT = "gateway_key"


def check_secrets(tenant: Tenant, secrets: Mapping[str, bytes]) -> None:
    if b"unusable" in secrets.values():
        raise InvalidInput("a secret cannot be used", where=tenant.slug)


def tenancy(context: StepContext, secrets: Mapping[str, bytes]) -> None:
    for name, value in secrets.items():
        context.session.write_file(f"/etc/light-secret-{name}", value, owner="root", group="root", mode="0600")
    environment = {IN_ENVIRONMENT.upper(): secrets[IN_ENVIRONMENT]} if IN_ENVIRONMENT in secrets else {}
    content = environment_file(environment)
    context.session.write_file("/etc/light-gateway.env", content, owner="root", group="root", mode="0600")
    context.render()
    server.shell(name="Gateway unit", commands=["systemctl enable --now light-gateway.service"])
