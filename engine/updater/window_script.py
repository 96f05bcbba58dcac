"""Runs on the tenant: the restart window, in one go so that a lost connection cannot leave it half open.

Reads ``PARAMETERS``: unit, database, silence_seconds, empty_is_quiet, switches {link: directory},
snapshot {source, directory, keep} or null. Leaves ``RESULT``: {"outcome": "restarted", "old_pid",
"started_at"}, {"outcome": "busy"} where a message came after the gate, {"outcome": "unknown", "problem"} where
the history cannot be read any more, or {"outcome": "refused", "problem"}.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import pathlib
import shutil
import sqlite3
import stat
import subprocess
import time

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
QUERY_SECONDS = 20


def show(unit, name):
    command = ["systemctl", "show", "--value", "-p", name, unit]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.strip()


def systemctl(*arguments):
    command = ["systemctl", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"systemctl {' '.join(arguments)}: {done.stderr.strip()}"


def is_silent(database, silence_seconds, empty_is_quiet):
    """Whether the newest message is old enough; opens the database as the probe does, and creates nothing."""
    if not stat.S_ISREG(os.lstat(database).st_mode):
        raise TypeError("the database is not a regular file")
    # Without a log beside it nobody writes; an ordinary opening would then create the log's files.
    mode = "?mode=ro" if os.path.exists(database + "-wal") else "?immutable=1"
    connection = sqlite3.connect(pathlib.Path(database).as_uri() + mode, uri=True, timeout=5)
    try:
        # What is called a table may be a view without an end.
        end = time.monotonic() + QUERY_SECONDS
        connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
        newest = connection.execute("SELECT MAX(timestamp) FROM messages").fetchone()[0]
    finally:
        connection.close()
    if newest is None:
        return empty_is_quiet
    return time.time() - newest >= silence_seconds


def size_of(directory):
    total = 0
    for root, _, names in os.walk(directory):
        total += sum(os.lstat(os.path.join(root, name)).st_size for name in names)
    return total


def room_problem(snapshot):
    """Why the snapshot cannot be taken, found before the gateway is stopped."""
    needed = size_of(snapshot["source"])
    parent = os.path.dirname(snapshot["directory"])
    os.makedirs(parent, mode=0o700, exist_ok=True)
    # What an interrupted window left is of no use and may be what fills the disk.
    for name in os.listdir(parent):
        if name.endswith(".partial"):
            shutil.rmtree(os.path.join(parent, name))
    free = shutil.disk_usage(parent).free
    if free < needed * 1.1 + 16 * 1024 * 1024:
        return f"no room for a snapshot of {snapshot['source']}: {needed} bytes needed, {free} bytes free"
    return ""


def take(snapshot):
    partial = snapshot["directory"] + ".partial"
    command = ["cp", "-a", "--", snapshot["source"], partial]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        shutil.rmtree(partial, ignore_errors=True)
        raise OSError(f"no snapshot could be taken: {done.stderr.strip()[-500:]}")
    # On the disk before the new version touches the state that it was taken of.
    os.sync()
    os.rename(partial, snapshot["directory"])


def prune(snapshot):
    """Remove the oldest snapshots; done while the gateway runs again."""
    parent = os.path.dirname(snapshot["directory"])
    for old in sorted(os.listdir(parent))[: -snapshot["keep"]]:
        shutil.rmtree(os.path.join(parent, old))


def switch(link, directory):
    temporary = link + ".partial"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(directory, temporary)
    os.rename(temporary, link)
    descriptor = os.open(os.path.dirname(link), os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def window(unit, switches, snapshot):
    old_pid = int(show(unit, "MainPID"))
    problems = [systemctl("stop", unit)]
    try:
        if not problems[0]:
            if snapshot:
                take(snapshot)
            for link, directory in switches.items():
                switch(link, directory)
    except OSError as error:
        problems.append(str(error))
    # Whatever happened, the owner gets a running gateway back.
    started_at = time.time()
    problems.append(systemctl("daemon-reload"))
    # Fails for a unit that systemd has dropped from memory, which then has no failures to forget.
    systemctl("reset-failed", unit)
    problems.append(systemctl("start", unit))
    if snapshot:
        prune(snapshot)
    found = "; ".join(problem for problem in problems if problem)
    if found:
        return {"outcome": "refused", "problem": found}
    return {"outcome": "restarted", "old_pid": old_pid, "started_at": started_at}


def run(parameters):
    unit, snapshot = parameters["unit"], parameters["snapshot"]
    try:
        has_process = (
            show(unit, "ActiveState") not in ("inactive", "failed") and show(unit, "SubState") != "auto-restart"
        )
        if has_process and not is_silent(
            parameters["database"], parameters["silence_seconds"], parameters["empty_is_quiet"]
        ):
            return {"outcome": "busy"}
    except (OSError, sqlite3.Error, TypeError) as error:
        return {"outcome": "unknown", "problem": str(error)}
    problem = room_problem(snapshot) if snapshot else ""
    if problem:
        return {"outcome": "refused", "problem": problem}
    return window(unit, parameters["switches"], snapshot)


RESULT = run(PARAMETERS)
