"""How the lab runs commands on the operator's machine."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from engine.errors import CommandFailed

# The launched process must leave the caller's control group and the lab's lock behind it before it
# becomes the long-lived one; bash, because dash cannot close a descriptor above nine.
_LAUNCH = """
log=$1 locks=$2; shift 2
while [ "$1" != -- ]; do echo $$ > "$1"; shift; done
shift
(
  for descriptor in $locks; do exec {descriptor}>&-; done
  exec setsid "$@" < /dev/null >> "$log" 2>&1
) &
echo $!
"""


@dataclass(frozen=True)
class Commands:
    """Runs commands that hold the caller's locks until they end.

    `locks` are descriptors of lock files, `directory` is where commands start.
    """

    locks: tuple[int, ...] = ()

    def run(self, *argv: str, stdin: str = "", directory: Path | None = None) -> str:
        """Return what the command printed; raises `CommandFailed` with its last words."""
        done = subprocess.run(
            argv,
            input=stdin,
            cwd=directory,
            pass_fds=self.locks,
            umask=0o022,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            last_words = (done.stderr.strip() or done.stdout.strip()).splitlines()[-3:]
            raise CommandFailed(f"{' '.join(argv[:6])}: {'; '.join(last_words)}", where="this machine")
        return done.stdout

    def launch(self, argv: Sequence[str], *, log: Path, join: Sequence[Path]) -> int:
        """Start a process that outlives this one, and return its process id.

        It has its own session, no terminal, the control groups whose ``cgroup.procs`` files are
        `join`, and its output goes to `log`. It does not hold the locks; until it is in its control
        groups, its starter does.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        descriptors = " ".join(str(lock) for lock in self.locks)
        leave = (str(log), descriptors, *(str(path) for path in join))
        return int(self.run("bash", "-euc", _LAUNCH, "launch", *leave, "--", *argv))
