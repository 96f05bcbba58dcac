"""Runs one lab call and kills itself at a chosen point: ``killed_lab.py STATE_DIR CALL POINT PACKAGE…``.

A point is a command being started, which then goes on alone, or a record about to be written.
Ends with status 0 if the call has fewer points.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from engine.provision.providers.lab import HostSpec, Lab, commands, state
from engine.provision.providers.lab.identity import public_half
from engine.registry.settings import LabSettings

run_command = subprocess.run
replace_file = state.replace_file


class Death:
    """Counts points down to the one that kills."""

    def __init__(self, point: int) -> None:
        self._left = point

    def is_now(self) -> bool:
        self._left -= 1
        return self._left < 0

    def run(self, argv: Any, **options: Any) -> Any:
        if not self.is_now():
            return run_command(argv, **options)
        for name in ("check", "capture_output"):
            options.pop(name)
        text = options.pop("input")
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, **options)
        process.stdin.write(text)
        process.stdin.flush()
        return os.kill(os.getpid(), signal.SIGKILL)

    def replace_file(self, path: Path, content: bytes) -> None:
        if self.is_now():
            os.kill(os.getpid(), signal.SIGKILL)
        replace_file(path, content)


def main(state_dir: Path, call: str, point: int, packages: tuple[str, ...]) -> None:
    death = Death(point)
    commands.subprocess.run = death.run
    state.replace_file = death.replace_file
    lab = Lab(state_dir, LabSettings(packages=packages), print)
    spec = HostSpec.light("maple", public_half(state_dir / "ssh/id_ed25519"))
    {
        "up": lambda: lab.up([spec]),
        "rebuild": lambda: lab.rebuild(spec),
        "down": lab.down,
        "destroy": lab.destroy,
    }[call]()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), tuple(sys.argv[4:]))
