"""Phase B of the light fleet: secrets, the rendered set, the gateway's unit."""

from collections.abc import Mapping

from pyinfra.operations import server

from engine.steps import StepContext


def tenancy(context: StepContext, secrets: Mapping[str, bytes]) -> None:
    for name, value in secrets.items():
        context.session.write_file(f"/etc/light-secret-{name}", value, owner="root", group="root", mode="0600")
    context.render()
    server.shell(name="Gateway unit", commands=["systemctl enable --now light-gateway.service"])
