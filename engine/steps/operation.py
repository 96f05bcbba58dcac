"""The one pyinfra operation that every release step runs as, in the engine and in pyinfra's own CLI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyinfra
from pyinfra.api import StringCommand, operation
from pyinfra.api.exceptions import NestedOperationError, OperationError, PyinfraError

from engine import conversations
from engine.errors import CommandLost, StepFailed
from engine.hosts.ledger import Ledger
from engine.hosts.plain import plain_errors
from engine.hosts.session import session_of
from engine.hosts.status import Answer
from engine.registry.load import load_fleet
from engine.releases.manifest import load_manifest
from engine.steps.context import StepContext
from engine.steps.step import Step

_STDERR_LINES = 12


def apply_step(step: Step, context: StepContext, *, again: bool = False) -> None:
    """Run `step` once on the tenant of `context`; raises :class:`StepFailed` with the last error lines.

    What the step will owe is on the tenant before its first command. A lost connection passes through
    as what it is. With `again` it runs whatever its precondition says.
    """
    with operation_errors(context, f"step {step.name}"):
        _run_step(step, context, again=again, name=f"step {step.name}")


@contextmanager
def operation_errors(context: StepContext, what: str) -> Iterator[None]:
    """Turn a failed pyinfra operation of the body into :class:`StepFailed` with its last lines.

    What the body shipped to the host is removed, unless a command that was lost, or left by an interrupted
    run, may still read it: the next run that claims the host clears that away.
    """
    try:
        yield
    except CommandLost:
        raise
    except NestedOperationError as error:
        context.unship()
        raise _step_failed(context, what, error) from error
    except PyinfraError as error:
        context.unship()
        raise StepFailed(
            f"{what} failed: {error}", where=context.tenant.slug, hint="correct the step's file"
        ) from error
    except Exception:
        context.unship()
        raise
    context.unship()


def _step_failed(context: StepContext, what: str, error: NestedOperationError) -> StepFailed:
    host = context.session.host
    output = host.state.get_op_data_for_host(host, error.args[0]).operation_meta
    lines = (output.stderr_lines or output.stdout_lines)[-_STDERR_LINES:]
    return StepFailed(
        f"{what} failed: {' | '.join(line.strip() for line in lines) or 'no output'}",
        where=context.tenant.slug,
        hint="correct the cause and run it again: every step may run twice",
    )


def deploy_from_cli(step: Step) -> None:
    """Run `step` under pyinfra's own CLI, with the arguments of its newest entry in the manifest.

    ``--data NAME=VALUE`` overrides an argument. The marker is not touched and nothing is restarted;
    what the step owes is recorded for the next converge.
    """
    if not pyinfra.is_cli:
        return
    from pyinfra import host

    fleet_root = Path(host.data.tenantry_fleet)
    fleet = load_fleet(fleet_root)
    located = step.located(fleet_root / "deploys")
    with plain_errors():
        session = session_of(host)
        context = StepContext(
            tenant=fleet.tenants[host.data.tenantry_slug],
            settings=fleet.settings,
            session=session,
            status=session.probe(),
            fleet_root=fleet_root,
            state_directory=Path(host.data.tenantry_state),
            arguments=_cli_arguments(step, fleet_root, host.data),
        )
    if not located.applies_to(context.tenant):
        host.noop(f"step {step.name} is not for trade {context.tenant.trade} and role {context.tenant.role}")
        return
    _run_step(located, context, name=f"step {step.name}")


def _cli_arguments(step: Step, fleet_root: Path, data: Any) -> Mapping[str, Any]:
    entries = [entry for release in load_manifest(fleet_root / "releases.yaml") for entry in release.steps]
    newest = next((entry.arguments for entry in reversed(entries) if entry.name == step.name), {})
    names = step.parameters
    arguments = {**newest, **{name: data.get(name) for name in names if data.get(name) is not None}}
    step.check_arguments(arguments)
    return arguments


@operation()  # type: ignore[untyped-decorator]
def _run_step(step: Step, context: StepContext, again: bool = False) -> Iterator[Any]:
    answer = Answer.DOES_NOT_HOLD if again else step.check(context)
    if answer is Answer.UNKNOWN:
        raise OperationError(f"step {step.name}: its precondition is unknown, so nothing was done")
    if answer is Answer.HOLDS:
        context.session.host.noop(f"step {step.name}: its effect is there already")
        return
    # pyinfra's --dry evaluates a body up to its first command, so nothing may happen before this one.
    yield StringCommand("true")
    restart, switches = step.owes(context)
    if any(conversations.is_personality(context.settings, path) for path in step.files(context)):
        conversations.owe(context.session, context.fleet_root)
    if restart or switches:
        Ledger(context.session).owe(restart, switches=switches)
    yield from step.commands(context)
    # Here for pyinfra's own CLI, which has nobody else to do it.
    context.unship()
