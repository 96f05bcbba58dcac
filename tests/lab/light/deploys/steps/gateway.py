"""An upgrade step: another version of the small gateway beside the present one."""

from collections.abc import Iterator

from pyinfra.api import StringCommand

from engine.steps import Answer, StepContext, upgrade


def runs_version(context: StepContext) -> Answer:
    target = f"/opt/light/{context.arguments['version']}"
    output = context.session.execute("readlink /opt/light/current")
    return Answer.UNKNOWN if output.status else Answer.of(output.stdout.decode().strip() == target)


@upgrade(link="/opt/light/current", directory="/opt/light/{version}", bundle="gateway", precondition=runs_version)
def gateway(context: StepContext, *, version: str) -> Iterator[StringCommand]:
    target = f"/opt/light/{version}"
    yield StringCommand(f"mkdir -p {target} && cp {context.staging}/gateway.py {target}/")


gateway.deploy()
