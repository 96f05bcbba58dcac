"""The ``@tenant/<slug>`` connector: pyinfra's operations and facts over the engine's own channel.

The same class serves the engine and pyinfra's CLI. In the CLI it takes the tenant's lock and claims the
host at the first command or file transfer of the execute stage; facts before that and ``--dry`` stay
lock-free. In the engine the caller holds the lock and claims the session.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, ClassVar, TypedDict

import pyinfra
from pyinfra import logger
from pyinfra.api import StringCommand
from pyinfra.api.output import echo
from pyinfra.api.util import get_file_io
from pyinfra.connectors.base import BaseConnector, DataMeta
from pyinfra.connectors.util import (
    CommandOutput,
    OutputLine,
    extract_control_arguments,
    make_unix_command_for_host,
    remove_any_sudo_askpass_file,
)

from engine.clock import new_run_id
from engine.errors import Unreachable
from engine.hosts import transfer
from engine.hosts.access import DATA_KEY, FIRST_CONTACT_KEY, Access, access_from
from engine.hosts.channel import Output, Sink
from engine.hosts.plain import HostUnreachable, plain_errors
from engine.hosts.session import Session
from engine.hosts.shell import HostShell, Streams
from engine.locks import LockDirectory


class TenantData(TypedDict):
    """Host data that the connector reads."""

    tenantry_slug: str
    tenantry_fleet: str
    tenantry_state: str


class TenantConnector(BaseConnector):  # type: ignore[misc]
    """One tenant's host in pyinfra."""

    handles_execution = True
    data_cls = TenantData
    data_meta: ClassVar = {
        "tenantry_slug": DataMeta("Slug of the tenant"),
        "tenantry_fleet": DataMeta("Fleet directory (default: the current one)"),
        "tenantry_state": DataMeta("State directory (default: var in the fleet directory)"),
    }

    _shell: HostShell | None = None
    _session: Session | None = None

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, str], list[str]]]:
        """``@tenant/maple`` is one host of that name."""
        yield f"@tenant/{name}", {"tenantry_slug": name}, []

    def connect(self) -> None:
        """Connect; raises the engine's errors, or one plain line in pyinfra's CLI."""
        self._locks = ExitStack()
        with plain_errors(HostUnreachable):
            access = self._access()
            tenant = access.tenant(self.data["tenantry_slug"])
            connection = access.connect(tenant, self.host.connector_data.get(FIRST_CONTACT_KEY))
            shell = HostShell(connection, access.settings.transport, access.clock)
            shell.reconnect = lambda: access.connect(tenant)
        if pyinfra.is_cli:
            shell.before_command = lambda: self._take_over(access)
        self._shell = shell
        self._session = Session(tenant, access.settings, self.host, shell)

    def disconnect(self) -> None:
        """Free the lock and close the connection."""
        if self._shell is None:
            return
        remove_any_sudo_askpass_file(self.host)
        self._shell.close()
        self._shell = self._session = None
        self._locks.close()

    def session(self) -> Session:
        """The engine's view of this connected host."""
        if self._session is None:
            raise Unreachable("not connected", where=self.host.name)
        return self._session

    def run_shell_command(
        self, command: StringCommand, print_output: bool = False, print_input: bool = False, **arguments: Any
    ) -> tuple[bool, CommandOutput]:
        """Run a command with pyinfra's global arguments."""
        success_codes = arguments.get("_success_exit_codes") or [0]
        output = self._run(command, arguments, print_output=print_output, print_input=print_input)
        return output.status in success_codes, _command_output(output)

    def put_file(
        self,
        filename_or_io: str | IO[Any],
        remote_filename: str,
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        """Replace a file on the host; it keeps its owner and mode if it is there already."""
        with get_file_io(filename_or_io) as source:
            size = transfer.size_of(source)
            arguments["_stdin"] = source
            output = self._run(
                StringCommand(transfer.receive(remote_filename, size)), arguments, print_input=print_input
            )
        return self._report(output, "upload", remote_filename, print_output)

    def get_file(
        self,
        remote_filename: str,
        filename_or_io: str | IO[Any],
        remote_temp_filename: str | None = None,
        print_output: bool = False,
        print_input: bool = False,
        **arguments: Any,
    ) -> bool:
        """Fetch a file from the host; a local file is replaced only by a whole one."""
        with transfer.local_sink(filename_or_io) as sink:
            output = self._run(
                StringCommand(transfer.send(remote_filename)), arguments, stdout=sink, print_input=print_input
            )
            sink.complete = output.status == 0
        return self._report(output, "download", remote_filename, print_output)

    def _run(
        self,
        command: StringCommand,
        arguments: dict[str, Any],
        *,
        stdout: Sink | None = None,
        print_output: bool = False,
        print_input: bool = False,
    ) -> Output:
        control = extract_control_arguments(arguments)
        line = make_unix_command_for_host(self.state, self.host, command, **arguments)
        if print_input:
            echo(f"{self.host.print_prefix}>>> {line}", err=True)
        streams = Streams(
            stdin=transfer.stdin_of(control.get("_stdin")),
            stdout=stdout,
            observer=_Printer(self.host.print_prefix).write if print_output else None,
            terminal=bool(control.get("_get_pty")),
        )
        with plain_errors():
            shell = self._connected()
            return shell.execute(
                line.get_raw_value(), streams, label=str(command), timeout=control.get("_timeout") or None
            )

    def _report(self, output: Output, action: str, path: str, print_output: bool) -> bool:
        if output.status != 0:
            logger.error(f"{self.host.print_prefix}{action} of {path} failed: {output.error_text.strip()}")
        elif print_output:
            echo(f"{self.host.print_prefix}{action} of {path} done", err=True)
        return output.status == 0

    def _connected(self) -> HostShell:
        if self._shell is None:
            raise Unreachable("not connected", where=self.host.name)
        return self._shell

    def _access(self) -> Access:
        return self.host.connector_data.get(DATA_KEY) or access_from(self.data)

    def _take_over(self, access: Access) -> None:
        """Lock the tenant and claim the host, once, when pyinfra's CLI begins to execute."""
        shell = self._connected()
        if not self.state.is_executing or shell.claimed_by:
            return
        run_id = new_run_id(access.clock)
        locks = LockDirectory(access.state_dir / "locks", access.clock)
        tenant = access.tenant(self.data["tenantry_slug"])
        self._locks.enter_context(locks.hold(tenant.subject, job="pyinfra", run=run_id))
        shell.claim(run_id)


class _Printer:
    """Prints whole lines of a command's output as they come."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._rest = {"stdout": b"", "stderr": b""}

    def write(self, stream: str, data: bytes) -> None:
        *lines, self._rest[stream] = (self._rest[stream] + data).split(b"\n")
        for line in lines:
            echo(f"{self._prefix}{line.decode(errors='replace')}", err=True)


def _command_output(output: Output) -> CommandOutput:
    lines = [OutputLine("stdout", line) for line in _lines(output.text)]
    return CommandOutput(lines + [OutputLine("stderr", line) for line in _lines(output.error_text)])


def _lines(text: str) -> list[str]:
    # Not splitlines(): that would also cut at a form feed or a line separator within a line.
    return text.removesuffix("\n").split("\n") if text else []
