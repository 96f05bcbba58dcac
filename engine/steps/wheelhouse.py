"""Python programs for hosts without a package index: fetched once here, hash by hash, then streamed.

A lock file is a pip requirements file in which every pin carries its hashes. Wheels are for machines
of the operator's own kind (operating system, processor, Python minor version).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyinfra.api import StringCommand

from engine.errors import Busy, InvalidInput, MissingPart
from engine.steps.context import StepContext

WAIT_SECONDS = 900.0
POLL_SECONDS = 0.2

_PIN = re.compile(r"^[A-Za-z0-9][^\s#]*==", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})\b")

# The installer notes the time at which it saw each wheel: without that note, two hosts provisioned a
# day apart hold the same bytes. Bytecode is left to the program's own cache, for the same reason.
_INSTALL = """
set -eu
cd {wheels}
python3 -m venv --without-pip {directory}
python3 -m zipfile -e uv-*.whl .installer
chmod 0755 .installer/uv-*/scripts/uv
.installer/uv-*/scripts/uv pip install --quiet --offline --no-config --no-cache --no-index --find-links . \\
    --require-hashes --no-deps --link-mode copy --python {directory}/bin/python -r {requirements}
find {directory} -name uv_cache.json -delete
find {directory} -name RECORD -exec sed -i '/uv_cache.json,/d' {{}} +
"""


def fetch(locks: Sequence[Path], state_directory: Path) -> Path:
    """Return a directory with the wheels of `locks` and the lock files themselves, every hash checked.

    It is downloaded at first use and checked again once in each process that uses it. Raises :class:`InvalidInput` for
    a lock file that pins without hashes, :class:`MissingPart` where the index cannot be reached,
    :class:`Busy` where another process downloads for longer than ``WAIT_SECONDS``.
    """
    texts = [_read_lock(lock) for lock in locks]
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    root = state_directory / "wheelhouse"
    directory = root / f"{locks[0].stem}-{digest[:12]}"
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _sole_downloader(root / ".lock"):
        if not _is_whole(directory, texts):
            _download(locks, texts, directory)
    return directory


def virtual_environment(
    context: StepContext, directory: str, *, requirements: Path, installer: Path
) -> Iterator[StringCommand]:
    """The commands that create a virtual environment at `directory` from the lock `requirements`.

    `installer` is the lock of the ``uv`` wheel that does the work on the host and leaves with the
    staging directory. The host needs ``python3-venv`` and no network.
    """
    wheels = context.ship(fetch((requirements, installer), context.state_directory))
    values = {"wheels": wheels, "directory": directory, "requirements": requirements.name}
    yield StringCommand(_INSTALL.format(**{key: shlex.quote(value) for key, value in values.items()}))


def _read_lock(lock: Path) -> str:
    try:
        text = lock.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"cannot be read: {error.strerror}", where=str(lock), hint="give a hash-locked file"
        ) from error
    pins = list(_PIN.finditer(text))
    ends = [pin.start() for pin in pins[1:]] + [len(text)]
    if not pins or any(not _HASH.search(text, pin.start(), end) for pin, end in zip(pins, ends, strict=True)):
        raise InvalidInput(
            "a pin has no sha256 hash", where=str(lock), hint="uv pip compile --generate-hashes writes them"
        )
    return text


@contextmanager
def _sole_downloader(path: Path) -> Iterator[None]:
    deadline = time.monotonic() + WAIT_SECONDS
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Polled, because a blocking flock would stop every other tenant's greenlet in this process.
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise Busy("another process is downloading wheels", where=str(path), hint="wait for it or end it")
            time.sleep(POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_whole(directory: Path, texts: Sequence[str]) -> bool:
    wheels = list(directory.glob("*.whl"))
    pins = sum(len(_PIN.findall(text)) for text in texts)
    allowed = {digest for text in texts for digest in _HASH.findall(text)}
    return len(wheels) == pins and all(_digest(wheel, _state(wheel)) in allowed for wheel in wheels)


def _state(wheel: Path) -> tuple[int, ...]:
    """What changes whenever the file does."""
    status = wheel.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@functools.cache
def _digest(wheel: Path, state: tuple[int, ...]) -> str:
    """The sha256 of a wheel, read once a process while `state` stays."""
    with wheel.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(locks: Sequence[Path], texts: Sequence[str], directory: Path) -> None:
    for leftover in directory.parent.glob(f".{directory.name}.*.partial"):
        shutil.rmtree(leftover)
    partial = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.partial")
    partial.mkdir(mode=0o700)
    try:
        _run_pip(locks, partial)
        for lock, text in zip(locks, texts, strict=True):
            (partial / lock.name).write_text(text, encoding="utf-8")
        if not _is_whole(partial, texts):
            raise MissingPart(
                "the index gave other files than the lock names",
                where=str(locks[0]),
                hint="renew the lock file",
            )
        _sync_tree(partial)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _run_pip(locks: Sequence[Path], destination: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]
    command += ["--require-hashes", "--no-deps", "--only-binary=:all:", "--dest", str(destination)]
    for lock in locks:
        command += ["-r", str(lock)]
    result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if result.returncode != 0:
        lines = [line for line in result.stderr.decode(errors="replace").splitlines() if line.strip()]
        reason = next(
            (line for line in reversed(lines) if line.startswith("ERROR")),
            lines[-1] if lines else "no output",
        )
        raise MissingPart(
            f"pip could not download the wheels: {reason}",
            where=str(locks[0]),
            hint="is the package index reachable from here?",
        )


def _sync_tree(directory: Path) -> None:
    for path in (*directory.iterdir(), directory):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
