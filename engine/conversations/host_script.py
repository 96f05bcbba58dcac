"""Runs on the tenant: shows and renews the personality in the prompts that the runtime keeps with its conversations.

A part of other scripts, which call its functions; the engine itself uses the pure ones. What it must know lies in
``/var/lib/tenantry/conversations``: ``settings.json``, and ``known/`` with every personality that a conversation
may have begun with, each under its fingerprint. The database belongs to the runtime's account, and is opened with
that account's rights alone.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import contextlib
import hashlib
import json
import os
import pathlib
import select
import signal
import sqlite3
import stat
import subprocess
import time
from typing import Any

HOME = "/var/lib/tenantry"
LARGEST_TEXT = 1 << 20
LONGEST_LIST = 200
SECONDS = 60.0
REASON = "conversations"
BUSY_SECONDS = 10.0


class Unfit(Exception):
    """The database is not what the settings describe: nothing in it is changed."""


# Prompts, purely


def spoken(text: str) -> str:
    """A personality as the runtime puts it into a prompt: other line ends and the blanks around it left out."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def fingerprint(text: str) -> str:
    """What a personality is known by: the same for two files that the runtime speaks alike."""
    return hashlib.sha256(spoken(text).encode("utf-8", "surrogateescape")).hexdigest()


def beginnings(known, follows):
    """What a prompt begins with for each known personality, by fingerprint: its text, a blank line, what follows."""
    return {mark: f"{text}\n\n{follows}".encode("utf-8", "surrogateescape") for mark, text in known.items() if text}


def personality_of(prompt, begins):
    """The fingerprint of the personality that `prompt` begins with; None where it is none, or could be two."""
    found = [mark for mark, begin in begins.items() if prompt.startswith(begin)]
    return found[0] if len(found) == 1 else None


def replaced(prompt, old, new):
    """`prompt`, which begins with `old`, with `new` in its place; every other byte stays."""
    return new.encode("utf-8", "surrogateescape") + prompt[len(old.encode("utf-8", "surrogateescape")) :]


# What is known on the tenant


def directory():
    return HOME + "/conversations"


def owe(settings):
    """Before the personality's file changes: remember it as it is, how to renew it, and that this is owed."""
    os.umask(0o077)
    os.makedirs(directory() + "/known", mode=0o700, exist_ok=True)
    # What is no file, or none that can be read, leaves prompts that nobody recognises: the policy is for those.
    with contextlib.suppress(OSError):
        remember(text_of(settings["personality"]))
    write("conversations/settings.json", settings)
    owed = read("owed.json") or {}
    reasons = owed.get("restart", [])
    # Prompts can be renewed in a restart window alone, so one is owed whatever else is.
    reasons = reasons if REASON in reasons else [*reasons, REASON]
    write("owed.json", {**owed, "restart": reasons, "conversations": True})


def remember(text):
    text = spoken(text)
    path = "conversations/known/" + fingerprint(text)
    if text and not os.path.exists(f"{HOME}/{path}"):
        replace(path, text.encode("utf-8", "surrogateescape"))


def known_texts(texts=()):
    """Every personality that is known here, and those of `texts`, by fingerprint."""
    known = {fingerprint(text): spoken(text) for text in texts}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(directory() + "/known"):
            if not name.endswith(".partial"):
                with open(f"{directory()}/known/{name}", "rb") as file:
                    known[name] = file.read().decode("utf-8", "surrogateescape")
    return known


def text_of(path):
    """The text of a regular file; whoever owns its directory could have put a link or a pipe there."""
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "not a regular file", path)
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise OSError(0, "too large", path)
    return content.decode("utf-8", "surrogateescape")


def read(name):
    try:
        with open(f"{HOME}/{name}", encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def write(name, value):
    replace(name, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def replace(name, content):
    """Replace a file of root's own, atomically and durably."""
    path = f"{HOME}/{name}"
    with open(os.open(path + ".partial", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".partial", path)
    parent = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(parent)
    os.close(parent)


# Renewing


def renew(settings, texts=(), may_reset=True):
    """With the gateway stopped: let every conversation go on with the personality that is in the file now.

    `texts` are personalities besides those that are known here. Gives {"renewed", "left": [session], "left_count",
    "reset": [id], "problem"}: how many have a new one, the open ones whose prompt was not recognised, those that
    ended for it. Raises OSError, sqlite3.Error or subprocess.SubprocessError. Prompts are changed all or none; where
    what comes after fails, such as the program that ends conversations, they are changed, and another call goes on:
    with the file of now, so also back.
    """
    report = {"renewed": 0, "left": [], "left_count": 0, "reset": [], "problem": ""}
    try:
        text = spoken(text_of(settings["personality"]))
        for one in (*texts, text):
            remember(one)
        if not os.path.lexists(settings["database"]):
            return report
        owner = owner_of(settings["database"])
        report["renewed"] = as_owner(owner, rewrite, settings, known_texts(), text)
        left = unrecognised(owner, settings)
        if may_reset and settings["policy"] == "reset":
            report["reset"] = reset(owner, settings, [one["id"] for one in left if one["state"] == "open"])
            left = unrecognised(owner, settings) if report["reset"] else left
        report.update(left=left[:LONGEST_LIST], left_count=len(left))
    except Unfit as error:
        report["problem"] = str(error)
    return report


def unrecognised(owner, settings):
    """The conversations with the owner that are not ended and whose prompt is not understood."""
    sources = settings["sources"]
    return [
        one
        for one in as_owner(owner, sessions, settings, known_texts(), False)
        if one["personality"] == "unknown" and (not sources or one["source"] in sources)
    ]


def rewrite(settings, known, text):
    """In one transaction: `text` in the place of every other known personality; how many prompts that were."""
    longest = settings["longest_characters"]
    if not text or len(text) > longest:
        raise Unfit(f"the personality has {len(text)} characters, the runtime takes 1 to {longest} unchanged")
    with connected(settings, "rw") as connection:
        table, key, prompt = (quoted(settings[name]) for name in ("table", "id", "prompt"))
        connection.execute("BEGIN IMMEDIATE")
        stale = [
            (row["id"], row["personality"])
            for row in rows(connection, settings, known)
            if row["is_resumable"] and row["personality"] in known and known[row["personality"]] != text
        ]
        for session, mark in stale:
            where = f"WHERE {key} = ?"
            found = connection.execute(f"SELECT CAST({prompt} AS BLOB) FROM {table} {where}", (session,)).fetchall()
            if len(found) != 1:
                raise Unfit(f"{settings['id']} does not name one row of {settings['table']}")
            wanted = replaced(found[0][0], known[mark], text)
            connection.execute(f"UPDATE {table} SET {prompt} = CAST(? AS TEXT) {where}", (wanted, session))
            check = f"SELECT CAST({prompt} AS BLOB) FROM {table} {where}"
            if connection.execute(check, (session,)).fetchall() != [(wanted,)]:
                raise Unfit(f"the database does not keep what is written into {settings['prompt']}")
        connection.execute("COMMIT")
    return len(stale)


def reset(owner, settings, sessions):
    """End these conversations with the fleet's own program, as the runtime's account; those that were to end."""
    if not sessions:
        return []
    # On the disk before the first of them ends: its owner is told, whatever becomes of this run.
    write("owed.json", {**(read("owed.json") or {}), "notice": True})
    question = json.dumps({"database": settings["database"], "sessions": sessions})
    command = [*settings["reset"]["interpreter"], "-c", settings["reset"]["program"]]
    done = subprocess.run(
        command,
        input=question.encode(),
        capture_output=True,
        timeout=SECONDS,
        check=False,
        cwd="/",
        preexec_fn=lambda: become(owner),
        env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": os.path.dirname(settings["database"])},
    )
    if done.returncode != 0:
        raise OSError(0, f"the program that ends conversations failed: {done.stderr.decode(errors='replace')[-500:]}")
    return sessions


# Showing


def show(settings, texts=(), ended=True):
    """{"personality", "sessions", "problem"}: the file's fingerprint, and each conversation's; changes nothing.

    Those that ended are left out unless `ended`: there is no bound to their number.
    """
    report: dict = {"personality": None, "sessions": [], "problem": ""}  # type: ignore[type-arg]
    try:
        with contextlib.suppress(FileNotFoundError):
            texts = [*texts, text_of(settings["personality"])]
            report["personality"] = fingerprint(texts[-1])
        if os.path.lexists(settings["database"]):
            owner = owner_of(settings["database"])
            report["sessions"] = as_owner(owner, sessions, settings, known_texts(texts), ended)
    except (Unfit, OSError, sqlite3.Error) as error:
        report["problem"] = str(error)
    return report


def sessions(settings, known, ended):
    with connected(settings, "ro") as connection:
        return [
            {name: row[name] for name in ("id", "source", "state", "personality")}
            for row in rows(connection, settings, known)
            if ended or row["state"] != "ended"
        ]


# The database


def owner_of(database):
    """Who owns the database; raises :class:`Unfit` for what could be shared with another profile."""
    status = os.lstat(database)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise Unfit(f"{database} is not one regular file of one name")
    return status.st_uid, status.st_gid


def become(owner):
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(owner[1])
        os.setuid(owner[0])


def as_owner(owner, function, *arguments):
    """What the function gives in a process with the owner's rights alone, in bounded time."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Never returns into the caller: what it still has to do is the parent's.
        try:
            os.close(reading)
            become(owner)
            with os.fdopen(writing, "wb") as answer:
                answer.write(json.dumps(attempt(function, arguments)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        answer = received(reading)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    kinds: Any = {"unfit": Unfit, "database": sqlite3.DatabaseError, "file": OSError}
    if answer["kind"] != "value":
        raise kinds[answer["kind"]](answer["value"])
    return answer["value"]


def attempt(function, arguments):
    try:
        return {"kind": "value", "value": function(*arguments)}
    except Unfit as error:
        return {"kind": "unfit", "value": str(error)}
    except sqlite3.Error as error:
        return {"kind": "database", "value": str(error)}
    except OSError as error:
        return {"kind": "file", "value": str(error)}


def received(descriptor):
    """The JSON value that a child prints; raises OSError where it takes too long or ends without one."""
    end, blocks = time.monotonic() + SECONDS, []
    while True:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise OSError(0, f"the conversations were not read within {SECONDS:g} s")
        block = os.read(descriptor, 1 << 16)
        if not block:
            break
        blocks.append(block)
    try:
        return json.loads(b"".join(blocks))
    except ValueError:
        raise OSError(0, "the conversations could not be read: the process ended without an answer") from None


@contextlib.contextmanager
def connected(settings, mode):
    """The database, checked to have the table and columns of the settings; nothing is created."""
    database = settings["database"]
    # Without a log beside it nobody writes; a reader's opening would then create the log's files.
    query = "immutable=1" if mode == "ro" and not os.path.exists(database + "-wal") else "mode=" + mode
    uri = f"{pathlib.Path(database).as_uri()}?{query}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.text_factory = lambda value: value.decode("utf-8", "replace")
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA synchronous=FULL")
        check_form(connection, settings)
        yield connection
    finally:
        # An open transaction is rolled back.
        connection.close()


def check_form(connection, settings):
    table = settings["table"]
    kind = connection.execute("SELECT type FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    if kind != ("table",):
        raise Unfit(f"the database has no table {table}")
    columns = {row[1] for row in connection.execute(f"PRAGMA table_info({quoted(table)})")}
    wanted = [settings[name] for name in ("id", "prompt", "ended", "archived", "source") if settings[name]]
    missing = [name for name in wanted if name not in columns]
    if missing:
        raise Unfit(f"the table {table} has no column {', '.join(missing)}")
    if connection.execute("PRAGMA encoding").fetchone() != ("UTF-8",):
        raise Unfit("the database does not hold UTF-8")


def rows(connection, settings, known):
    """Each conversation with the personality that its prompt begins with: a fingerprint, ``none`` or ``unknown``."""
    key, prompt, ended = (quoted(settings[name]) for name in ("id", "prompt", "ended"))
    archived = f"COALESCE({quoted(settings['archived'])}, 0) <> 0" if settings["archived"] else "0"
    source = quoted(settings["source"]) if settings["source"] else "''"
    columns = f"{key}, {source}, {ended}, {archived}, typeof({prompt}), CAST({prompt} AS BLOB)"
    begins, recent = beginnings(known, settings["follows"]), time.time() - settings["resumable_days"] * 86400
    for found in connection.execute(f"SELECT {columns} FROM {quoted(settings['table'])}"):
        session, origin, ended_at, is_archived, kind, content = found
        if not isinstance(session, (int, str)):
            raise Unfit(f"{settings['id']} of the table {settings['table']} is no text")
        mark = personality_of(content, begins) if kind == "text" and content else None
        # Without a prompt the runtime makes one, with the personality of the moment.
        is_empty = kind == "null" or content == b""
        yield {
            "id": session,
            "source": str(origin),
            "state": "ended" if ended_at is not None else "archived" if is_archived else "open",
            "is_resumable": ended_at is None or (isinstance(ended_at, (int, float)) and ended_at >= recent),
            "personality": mark or ("none" if is_empty else "unknown"),
        }


def quoted(name):
    return '"' + name.replace('"', '""') + '"'
