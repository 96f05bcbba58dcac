"""Runs on the tenant: the restart window of a restore, in one go. What it replaces moves into the recovery set.

Reads ``PARAMETERS``: ``set`` (the recovery set's run), ``tree`` (where the archive lies, checked), ``moved`` [{path,
kind, exclude, carry, whole}] as the set has them, ``parents`` {path: entry}, ``gateway`` {unit, database,
silence_seconds} or null where it need not be stopped, ``own_gateway`` (its unit), ``holders_only`` (stop only those
other units that have something open there), ``own`` {file of the engine's own: text or null}, ``owe`` (why a stopped
gateway's restart is owed). Leaves ``RESULT``: {"outcome": "exchanged", "stopped": [units], "running": [units that were
left alone], "unknown": why nothing is known of conversations, or ""}, {"outcome": "busy"}, or {"outcome": "failed",
"problem"}, after which the recovery set must be put back.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import sqlite3
import stat
import time
from typing import Any

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
trees: Any = globals()["trees"]
moves: Any = globals()["moves"]
units: Any = globals()["units"]
sets: Any = globals()["sets"]


def run(parameters):
    gateway, unknown = parameters["gateway"], ""
    if gateway:
        try:
            if has_process(gateway["unit"]) and not is_silent(gateway):
                return {"outcome": "busy"}
        except (OSError, sqlite3.Error, TypeError) as error:
            # Such a history may be why somebody wants the archive's.
            unknown = str(error)
    try:
        if gateway:
            owe(parameters["owe"])
        stopped, running = stop(parameters)
        exchange(parameters)
        return {"outcome": "exchanged", "stopped": stopped, "running": running, "unknown": unknown}
    except (OSError, Failed) as error:
        return {"outcome": "failed", "problem": str(error)}


class Failed(Exception):
    """Something that is not the file system's fault; the text says what."""


# Before


def has_process(unit):
    return (
        units.show(unit, "ActiveState") not in ("inactive", "failed") and units.show(unit, "SubState") != "auto-restart"
    )


def is_silent(gateway):
    """Whether the newest message is old enough, as in every restart window; without one there is none to cut off."""
    if not stat.S_ISREG(os.lstat(gateway["database"]).st_mode):
        raise TypeError("the database is not a regular file")
    connection = sets.open_database(gateway["database"])
    try:
        newest = connection.execute("SELECT MAX(timestamp) FROM messages").fetchone()[0]
    finally:
        connection.close()
    return newest is None or time.time() - newest >= gateway["silence_seconds"]


def stop(parameters):
    """Stop what may have the files open that are exchanged; the units that ran and those that do, the gateway apart."""
    known = moves.read_json(sets.directory_of(parameters["set"]) + "/set.json")["units"]
    active = [name for name in known if known[name]["active"] and name != parameters["own_gateway"]]
    names = active
    if parameters["holders_only"]:
        holding = holders([tree["path"] for tree in parameters["moved"]])
        names = [name for name in active if name in holding]
    names = units.starters_first(names)
    gateway = [parameters["gateway"]["unit"]] if parameters["gateway"] else []
    for name in [*gateway, *names]:
        problem = units.systemctl("stop", name)
        if problem:
            raise Failed(problem)
    return names, [name for name in active if name not in names]


def owe(reason):
    """Record the restart before the stop that causes it; an undo puts the record back too."""
    path = sets.HOME + "/owed.json"
    owed = moves.read_json(path) or {}
    owed["restart"] = [*(item for item in owed.get("restart", []) if item != reason), reason]
    moves.write_json(path, owed)


def holders(paths):
    """The units of processes that have something open at or below one of these paths."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            places = [os.readlink(f"/proc/{pid}/cwd")]
            places += [os.readlink(f"/proc/{pid}/fd/{number}") for number in os.listdir(f"/proc/{pid}/fd")]
            if any(place == path or place.startswith(path + "/") for place in places for path in paths):
                with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
                    found.add(os.path.basename(file.read().strip()))
        except OSError:
            # It ended meanwhile.
            continue
    return found


# Exchanging


def exchange(parameters):
    directory = sets.directory_of(parameters["set"])
    os.makedirs(directory + "/moved", mode=0o700, exist_ok=True)
    for path, entry in parameters["parents"].items():
        ensure_parent(path, entry)
    for number, tree in enumerate(parameters["moved"]):
        saved, new = f"{directory}/moved/{number}", parameters["tree"] + tree["path"]
        carry(tree, parameters["tree"])
        moves.ensure_directory(os.path.dirname(tree["path"]))
        if tree["whole"]:
            moves.replace_file(tree["path"], new, saved, saved + ".json")
        else:
            moves.replace_children(tree["path"], new, saved, saved + ".json", tree["exclude"])
    for name, text in parameters["own"].items():
        put_own(f"{sets.HOME}/{name}", text)
    problem = units.systemctl("daemon-reload")
    if problem:
        raise Failed(problem)


def ensure_parent(path, entry):
    if trees.look(path) is None:
        moves.ensure_directory(path)
        moves.dress_directory(path, entry)


def carry(tree, unpacked):
    """Copy to the archive's tree what is in no archive and lies deeper in the live one than the exchange goes.

    Links in the archive are an account's: what lies behind one now stays behind.
    """
    for relative in trees.matching(tree["path"], tree["carry"]):
        path = f"{tree['path']}/{relative}"
        try:
            directory = trees.open_below(unpacked, os.path.dirname(path))
        except trees.ABSENT:
            continue
        try:
            name = os.path.basename(path)
            if not trees.exists(name, directory):
                trees.copy_tree(path, f"/proc/self/fd/{directory}/{name}")
        finally:
            os.close(directory)


def put_own(path, text):
    if text is None:
        moves.remove_tree(path)
        moves.sync_directory(sets.HOME)
    else:
        moves.write_text(path, text)


RESULT = run(PARAMETERS)
