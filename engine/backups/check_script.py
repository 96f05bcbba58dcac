"""Runs on the tenant: whether an unpacked archive is what left the operator's machine, and its databases are sound.

Reads ``PARAMETERS``: ``tree`` (where it was unpacked), ``expected`` {path: what must be there}, ``databases`` {path:
{"tables": {name: rows}, "user_version"}}. Leaves ``RESULT``: {"wrong": [at most a few findings], "count", "checked"}.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import contextlib
import grp
import json
import os
import pwd
import sqlite3
from typing import Any
from urllib.parse import quote

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
trees: Any = globals()["trees"]
SHOWN = 10
COMPARED = ("kind", "mode", "sha256", "target")


def check(parameters):
    wrong = [*different_files(parameters), *unsound_databases(parameters)]
    return {"wrong": wrong[:SHOWN], "count": len(wrong), "checked": len(parameters["expected"])}


# Files


def different_files(parameters):
    found = {"/" + entry["path"]: entry for entry in trees.describe(parameters["tree"])}
    for path, wanted in sorted(parameters["expected"].items()):
        there = found.get(path)
        if there is None:
            yield f"{path} is missing"
            continue
        for aspect in COMPARED:
            # A link has no mode of its own.
            if (aspect, wanted["kind"]) != ("mode", "link") and there.get(aspect) != wanted[aspect]:
                yield f"{path} has {aspect} {there.get(aspect)}, the archive has {wanted[aspect]}"
        if there["uid"] != trees.number_of(pwd.getpwnam, wanted["owner"], wanted["uid"]):
            yield f"{path} belongs to {there['owner']}, in the archive to {wanted['owner']}"
        if there["gid"] != trees.number_of(grp.getgrnam, wanted["group"], wanted["gid"]):
            yield f"{path} has group {there['group']}, in the archive {wanted['group']}"


# Databases


def unsound_databases(parameters):
    for path, known in sorted(parameters["databases"].items()):
        answer = in_child(lambda path=path: look_into(parameters["tree"] + path))
        if "problem" in answer:
            yield f"database {path}: {answer['problem']}"
            continue
        if answer["user_version"] != known["user_version"]:
            yield f"database {path} has user_version {answer['user_version']}, not {known['user_version']}"
        for table, rows in sorted(known["tables"].items()):
            if answer["tables"].get(table) != rows:
                found = answer["tables"].get(table)
                yield f"table {table} of {path} has {found} rows, the archive's manifest says {rows}"


def in_child(work):
    """What `work` returns, from a process of its own that may give up its rights."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            answer = work()
        except (OSError, sqlite3.Error) as error:
            answer = {"problem": str(error)}
        except BaseException as error:
            answer = {"problem": f"it cannot be looked at: {error!r}"}
        with contextlib.suppress(BaseException), open(writing, "w", encoding="ascii") as file:
            json.dump(answer, file)
        os._exit(0)
    os.close(writing)
    try:
        with open(reading, encoding="ascii") as file:
            content = file.read()
    finally:
        os.waitpid(child, 0)
    return json.loads(content) if content else {"problem": "the process that looked at it ended without an answer"}


def look_into(path):
    """Soundness, version and rows of a database, found out with the rights of its owner alone."""
    status = os.lstat(path)
    # Nobody writes here; without this SQLite would make files beside a database in WAL mode.
    connection = sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(status.st_gid)
            os.setuid(status.st_uid)
        connection.execute("PRAGMA trusted_schema=OFF")
        problem = problem_of(connection)
        if problem:
            return {"problem": problem}
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return {"user_version": version, "tables": rows_of(connection, tables_of(path))}
    finally:
        connection.close()


def tables_of(path):
    """The tables whose rows the archive's manifest counts; others may need what only their own program has."""
    known = PARAMETERS["databases"][path[len(PARAMETERS["tree"]) :]]
    return sorted(known["tables"])


def problem_of(connection):
    try:
        answer = connection.execute("PRAGMA integrity_check(3)").fetchall()
    except sqlite3.OperationalError as error:
        if "no such" not in str(error):
            raise
        # It needs an extension that this host's SQLite lacks, as it did when the archive was made.
        return ""
    found = "; ".join(row[0] for row in answer)
    return "" if found == "ok" else f"integrity_check: {found}"


def rows_of(connection, tables):
    rows = {}
    for name in tables:
        quoted = name.replace('"', '""')
        with contextlib.suppress(sqlite3.OperationalError):
            rows[name] = connection.execute(f'SELECT COUNT(*) FROM "{quoted}"').fetchone()[0]
    return rows


RESULT = check(PARAMETERS)
