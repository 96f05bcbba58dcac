"""The program restic: its secrets on descriptors, its time bounded, its errors in its own last words."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from engine.errors import CommandFailed, CommandTimedOut, MissingPart
from engine.records.runs import printable
from engine.registry.safeguards import Restic
from engine.secrets import SecretSources

GRACE_SECONDS = 10
LAST_LINES = 5
LINE_CHARACTERS = 300

# What restic and the programs that it starts (ssh, rclone) need of this process's environment; nothing else of it.
_KEPT = ("HOME", "LOGNAME", "PATH", "SSH_AUTH_SOCK", "TMPDIR", "USER", "XDG_CONFIG_HOME")
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
_HINTS = (
    ("wrong password", "backup.restic.password is not this repository's; no key of it opens with that password"),
    ("already locked", "wait for the process named; if there is none any more: restic unlock"),
    ("unable to open config file", "is the storage in reach? A repository that never was: tenantry offsite init"),
    ("config file already exists", "it is initialised; nothing has to be done"),
)


@dataclass(frozen=True)
class ResticProgram:
    """Runs restic on a fleet's repository; a relative path of one starts at `state_directory`."""

    settings: Restic
    secrets: SecretSources
    state_directory: Path

    def run(self, *arguments: str, output: IO[bytes] | None = None) -> str:
        """Return what restic printed, or write it to `output`.

        Raises :class:`CommandFailed` with its last lines, :class:`CommandTimedOut`, or :class:`MissingPart`.
        The password and the repository's name travel on descriptors, the storage's secrets in the environment of
        restic alone, which has no other way for them.
        """
        password = self.secrets.resolve(self.settings.password)
        storage = {name: self._text(reference) for name, reference in self.settings.environment.items()}
        hidden = [text for text in (password.decode(errors="replace").strip(), *storage.values()) if text]
        with _descriptor(password) as key, _descriptor(self.settings.repository.encode()) as repository:
            argv = (
                *("restic", "--password-file", f"/dev/fd/{key}", "--repository-file", f"/dev/fd/{repository}"),
                *("--cache-dir", str(self.state_directory / "restic-cache"), *arguments),
            )
            process = self._start(argv, (key, repository), storage, output)
        printed, errors = self._ended(process, arguments[0])
        if process.returncode:
            raise _failure(arguments[0], process.returncode, errors.decode(errors="replace"), hidden)
        return (printed or b"").decode(errors="replace")

    def _text(self, reference: str) -> str:
        return self.secrets.resolve(reference).decode(errors="replace").strip()

    def _start(
        self, argv: Sequence[str], descriptors: Sequence[int], storage: Mapping[str, str], output: IO[bytes] | None
    ) -> subprocess.Popen[bytes]:
        self.state_directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        kept = {name: os.environ[name] for name in (*_KEPT, *_PROXIES) if name in os.environ}
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output or subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=descriptors,
                cwd=self.state_directory,
                env={**kept, **storage, "LC_ALL": "C.UTF-8"},
                umask=0o077,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise MissingPart(
                "restic is not installed", where="this machine", hint="apt-get install --yes restic"
            ) from error

    def _ended(self, process: subprocess.Popen[bytes], what: str) -> tuple[bytes | None, bytes]:
        """What it printed; whatever happens here, neither it nor a program that it started is left running."""
        try:
            return process.communicate(timeout=self.settings.seconds)
        except BaseException as error:
            _end(process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise CommandTimedOut(
                f"restic {what} did not end within {self.settings.seconds:g} s",
                where=shown_repository(self.settings),
                hint="look at the storage, or raise backup.restic.seconds in inventory/fleet.yaml",
            ) from None


def shown_repository(settings: Restic) -> str:
    """The repository's name without credentials that its address may hold."""
    return printable(_CREDENTIALS.sub("***@", settings.repository))


@contextlib.contextmanager
def _descriptor(content: bytes) -> Iterator[int]:
    """A descriptor from which another process can read `content`; it is on no disk and has no name."""
    descriptor = os.memfd_create("tenantry")
    try:
        os.write(descriptor, content)
        yield descriptor
    finally:
        os.close(descriptor)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End restic's whole session: asked first, so that it takes its lock off the repository."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _failure(what: str, status: int, errors: str, hidden: Sequence[str]) -> CommandFailed:
    for secret in hidden:
        errors = errors.replace(secret, "***")
    lines = [printable(_CREDENTIALS.sub("***@", line)) for line in errors.splitlines() if line.strip()]
    said = "; ".join(line[:LINE_CHARACTERS] for line in lines[-LAST_LINES:]) or "it said nothing"
    hint = next((hint for words, hint in _HINTS if words in errors), "")
    return CommandFailed(f"restic {what} ended with status {status}: {said}", where="offsite", hint=hint)
