"""The lab's stand-in for a language model: one process on this machine that all hosts reach."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.errors import CommandFailed
from engine.provision.providers.lab.commands import Commands
from engine.provision.providers.lab.control_group import ControlGroup
from engine.provision.providers.lab.network import LabNames
from engine.provision.providers.lab.processes import Process, identify
from engine.provision.providers.lab.state import LabState, ServiceRecord

STUB_GROUP = ".model-stub"
"""No host can have this name."""

START_SECONDS = 15.0
POLL_SECONDS = 0.05


class ModelStub:
    """Starts and ends the fleet's stub program, run by this Python as
    ``PROGRAM --host ADDRESS --port PORT --log FILE``.
    """

    def __init__(self, state: LabState, names: LabNames, progress: Callable[[str], None]) -> None:
        self._state = state
        self._group = ControlGroup.of_machine(names.group, STUB_GROUP)
        self._progress = progress

    @property
    def running(self) -> bool:
        record = self._state.read_stub()
        return record is not None and Process(record.pid, record.started).alive

    def ensure(self, program: Path, address: str, port: int, commands: Commands) -> None:
        """Have the program listen at the address; raises `CommandFailed` if it does not."""
        log = self._state.stub_log
        command = (sys.executable, str(program), "--host", address, "--port", str(port), "--log", str(log))
        record = self._state.read_stub()
        if self.running and record is not None and record.command == command:
            return
        self.stop()
        self._group.create()
        console = log.with_suffix(".console.log")
        pid = commands.launch(command, log=console, join=self._group.entrances)
        process = identify(pid)
        if process is None or not _listens(process, address, port):
            self.stop()
            raise CommandFailed("the model stub does not listen", where=str(console))
        self._state.write_stub(ServiceRecord(process.pid, process.started, address, port, command))
        self._progress(f"model stub listens at {address}:{port}")

    def stop(self) -> None:
        """End the program, recorded or not, and forget it."""
        self._group.clear()
        self._group.remove()
        self._state.stub_file.unlink(missing_ok=True)


def _listens(process: Process, address: str, port: int) -> bool:
    deadline = time.monotonic() + START_SECONDS
    while process.alive and time.monotonic() < deadline:
        try:
            with socket.create_connection((address, port), 1):
                return True
        except OSError:
            time.sleep(POLL_SECONDS)
    return False
