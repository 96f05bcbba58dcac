"""Runs on the tenant: the restart window, in one go so that a lost connection cannot leave it half open.

Reads ``PARAMETERS``: unit, database, silence_seconds, empty_is_quiet, switches {link: directory}, set (the recovery
set that the state goes into while the gateway is stopped, or null), conversations (how the prompts of conversations are
renewed, {"settings", "texts"}, or null). Leaves ``RESULT``: {"outcome": "restarted", "old_pid", "started_at",
"renewal"}, {"outcome": "busy"} where a message came after the gate, {"outcome": "unknown", "problem"} where the history
cannot be read any more, or {"outcome": "refused", "problem"}.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import pathlib
import sqlite3
import stat
import subprocess
import time
from typing import Any

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
moves: Any = globals()["moves"]
units: Any = globals()["units"]
sets: Any = globals()["sets"]
conversations: Any = globals()["conversations"]

QUERY_SECONDS = 20


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


def window(unit, switches, run, prompts):
    old_pid, problem = units.stop(unit)
    problems, renewal = [problem], None
    try:
        if not problem:
            if run:
                sets.take_state(run)
            if prompts:
                renewal = conversations.renew(prompts["settings"], prompts["texts"])
            for link, directory in switches.items():
                moves.place_link(link, directory)
    except (OSError, sqlite3.Error, subprocess.SubprocessError) as error:
        problems.append(str(error))
    # Whatever happened, the owner gets a running gateway back.
    started_at, more = units.start(unit)
    found = "; ".join(problem for problem in problems + more if problem)
    if found:
        return {"outcome": "refused", "problem": found}
    return {"outcome": "restarted", "old_pid": old_pid, "started_at": started_at, "renewal": renewal}


def run(parameters):
    unit = parameters["unit"]
    try:
        has_process = (
            units.show(unit, "ActiveState") not in ("inactive", "failed")
            and units.show(unit, "SubState") != "auto-restart"
        )
        if has_process and not is_silent(
            parameters["database"], parameters["silence_seconds"], parameters["empty_is_quiet"]
        ):
            return {"outcome": "busy"}
    except (OSError, sqlite3.Error, TypeError) as error:
        return {"outcome": "unknown", "problem": str(error)}
    problem = sets.state_lack(parameters["set"]) if parameters["set"] else ""
    if problem:
        return {"outcome": "refused", "problem": problem}
    return window(unit, parameters["switches"], parameters["set"], parameters["conversations"])


RESULT = run(PARAMETERS)
