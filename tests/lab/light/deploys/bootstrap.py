"""Phase A of the light fleet: directories and the small gateway in a versioned directory."""

from pyinfra.operations import files, server

from engine.steps import StepContext
from engine.steps.step import completion_of

VERSION = "1.0"


def bootstrap(context: StepContext) -> None:
    for path in ("/srv/light", "/opt/light"):
        files.directory(name=f"Directory {path}", path=path, user="root", group="root", mode="0755")
    shipped = context.ship(context.fleet_root / "deploys" / "bundles" / "gateway")
    server.shell(
        name="Gateway",
        commands=[
            f"mkdir -p /opt/light/{VERSION} && cp {shipped}/gateway.py /opt/light/{VERSION}/",
            completion_of(f"/opt/light/{VERSION}"),
            f"[ -e /opt/light/current ] || ln -s /opt/light/{VERSION} /opt/light/current",
        ],
    )
