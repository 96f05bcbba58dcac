"""Phase B of provisioning: secrets, rendered files, memory, skills, proxy and the gateway's unit."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from pyinfra.operations import systemd

from engine.steps import Expectation, File, InvalidInput, Place, StepContext, Tenant, Unit
from engine.steps.environment_file import environment_file

GATEWAY_UNIT = "tenant-gateway.service"
SECRETS_FILE = "/etc/tenant/gateway.env"
GATEWAY_SECRETS = ("api_server_key", "model_api_key")


def tenancy(context: StepContext, secrets: Mapping[str, bytes]) -> None:
    """Make a prepared host this tenant's own; running it again changes nothing that is right."""
    write_secrets(context, secrets)
    context.render()
    seed(context)
    systemd.service(name="Proxy", service="caddy.service", running=True, enabled=True, reloaded=True)
    systemd.service(name="Gateway", service=GATEWAY_UNIT, running=True, enabled=True, daemon_reload=True)


def expects(place: Place) -> Iterator[Expectation]:
    """What phase B leaves, for ``tenantry drift``, besides the rendered set. The memory is the runtime's own."""
    yield File(SECRETS_FILE, mode="0600")
    yield from place.tree("bundles/tenancy/skills", "/srv/tenant/skills")
    yield Unit("caddy.service")
    yield Unit(GATEWAY_UNIT)


def check_secrets(tenant: Tenant, secrets: Mapping[str, bytes]) -> None:
    """Raise for secrets that phase B could not use; asked before the server is rebuilt."""
    missing = [name for name in GATEWAY_SECRETS if name not in secrets]
    if missing:
        raise InvalidInput(
            f"secrets are missing: {', '.join(missing)}",
            where=f"inventory/tenants.yaml: {tenant.slug}",
            hint="give each of them a reference under `secrets`",
        )
    gateway_environment(secrets)


def gateway_environment(secrets: Mapping[str, bytes]) -> bytes:
    """The gateway's environment file: exactly these values for its process, whatever they hold."""
    return environment_file({name.upper(): secrets[name] for name in GATEWAY_SECRETS})


def write_secrets(context: StepContext, secrets: Mapping[str, bytes]) -> None:
    """Write the gateway's secrets to its root-only environment file, over standard input."""
    content = gateway_environment(secrets)
    context.session.write_file(SECRETS_FILE, content, owner="root", group="root", mode="0600")


def seed(context: StepContext) -> None:
    """Give the runtime its first memory and its skills.

    The tenant's parameters are the environment of this one command and of nothing else.
    """
    bundle = context.ship(context.fleet_root / "deploys" / "bundles" / "tenancy")
    parameters = {
        "OWNER_NAME": context.tenant.owner_name,
        "BUSINESS": context.tenant.business,
        "TRADE": context.tenant.trade,
        "PAGE_HOST": context.tenant.page_host,
        "FORWARDING_ADDRESS": context.tenant.forwarding_address,
    }
    assignments = " ".join(f"{name}={shlex.quote(value)}" for name, value in parameters.items())
    context.session.check(f"env {assignments} sh {shlex.quote(bundle)}/install.sh")
