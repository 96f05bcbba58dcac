"""Runs on the tenant, as the module ``databases`` of another script: finding SQLite databases and copying them while
they are in use, without changing a byte of them.

A database is opened by a child process that has its owner's rights while it does so: root must not make files there
that the owner could not use, nor follow a link of an account's to a place where that account may not look.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import contextlib
import errno
import fcntl
import json
import os
import pwd
import shutil
import sqlite3
import stat
import time
import traceback
from typing import Any
from urllib.parse import quote

trees: Any = globals()["trees"]

MAGIC = b"SQLite format 3\0"
HEADER_BYTES = 100
SIDECARS = ("-wal", "-shm", "-journal")
BUSY_SECONDS = 60
ATTEMPTS = 5
DEEPEST = 200
# Where SQLite's own locks are: readers hold a shared one on this range, and who rolls back needs all of it.
SHARED_FIRST = 0x40000002
SHARED_SIZE = 510


class CannotCopy(Exception):
    """A database that cannot be copied; the text names it."""


class NoRoom(Exception):
    """The disk filled up while a database was copied."""


# Finding


def find(root, exclude):
    """Yield (path, status) of each file with SQLite's header at or below `root`; no link is followed."""
    try:
        parent, name = trees.open_parent(root)
    except trees.ABSENT:
        return
    try:
        yield from find_below(parent, name, root, exclude, "", 0)
    finally:
        os.close(parent)


def find_below(parent, name, root, exclude, relative, depth):
    path = f"{root}/{relative}" if relative else root
    try:
        status = os.lstat(name, dir_fd=parent)
        if stat.S_ISREG(status.st_mode):
            if status.st_size >= HEADER_BYTES and has_header(parent, name):
                yield path, status
            return
        if not stat.S_ISDIR(status.st_mode):
            return
        directory = os.open(name, trees.DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno not in trees.GONE:
            raise
        return
    try:
        if depth > DEEPEST:
            raise CannotCopy(f"{path[:500]}… lies too deep to be searched for databases")
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False) or is_file(entry)]
        for child in names:
            below = f"{relative}/{child}" if relative else child
            if not trees.is_excluded(below, exclude):
                yield from find_below(directory, child, root, exclude, below, depth + 1)
    finally:
        os.close(directory)


def is_file(entry):
    return entry.is_file(follow_symlinks=False)


def has_header(parent, name):
    descriptor = os.open(name, trees.READ, dir_fd=parent)
    try:
        return os.read(descriptor, len(MAGIC)) == MAGIC
    finally:
        os.close(descriptor)


def size_with_log(path, status):
    """How many bytes a copy may take."""
    size = status.st_size
    with contextlib.suppress(OSError):
        size += os.lstat(path + "-wal").st_size
    return size


# Copying


def copy(path, target, wait):
    """Copy the database `path` to `target`; returns {"tables", "user_version", "size_bytes"}, None where it is gone.

    `wait` is called with a child's process id and ends when it has. Raises :class:`CannotCopy` or :class:`NoRoom`.
    """
    for _ in range(ATTEMPTS):
        try:
            status = os.lstat(path)
        except trees.ABSENT:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        answer = in_child(lambda status=status: copy_as_owner(path, status, target), wait)
        if "again" not in answer and is_same(path, status):
            break
        remove(target)
    else:
        raise CannotCopy(f"the database {path} is being replaced all the time")
    if "no_room" in answer:
        raise NoRoom(path)
    if "problem" in answer:
        raise CannotCopy(f"the database {path} cannot be copied: {answer['problem']}")
    os.chown(target, status.st_uid, status.st_gid)
    os.chmod(target, stat.S_IMODE(status.st_mode))
    os.utime(target, ns=(status.st_mtime_ns, status.st_mtime_ns))
    return {**answer, "size_bytes": os.lstat(target).st_size}


def is_same(path, status):
    """Whether a program has not put another file in the database's place meanwhile."""
    try:
        now = os.lstat(path)
    except OSError:
        return False
    return (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino)


def remove(target):
    for suffix in ("", *SIDECARS):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target + suffix)


def in_child(work, wait):
    """What `work` returns as JSON, from a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            os.write(writing, json.dumps(work()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    try:
        # A schema of thousands of tables does not fit in the pipe, so it is read before the child is waited for.
        content = b""
        while block := wait(reading, child):
            content += block
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    try:
        return json.loads(content)
    except ValueError:
        return {"problem": "the process that copied it ended without an answer"}


def copy_as_owner(path, status, target):
    try:
        if not copy_online(path, status, target):
            return {"again": True}
        return count(status, target)
    except sqlite3.DatabaseError as error:
        return {"no_room": True} if "full" in str(error) else {"problem": str(error)}
    except OSError as error:
        return {"no_room": True} if error.errno == errno.ENOSPC else {"problem": str(error)}


def copy_online(path, status, target):
    """Copy what a reader would see now; False where that has to be tried again."""
    with open(target, "xb") as file:
        os.fchmod(file.fileno(), 0o600)
    with open(path, "rb") as file:
        is_wal = file.read(20)[18:20] == b"\2\2"
    if is_wal and not is_open(path):
        return copy_idle(path, status, target, "-wal")
    # Read-only, and with a log whose index is there already, SQLite makes and changes no file.
    uri = f"file:{quote(os.fsencode(path))}?mode=ro" + ("&readonly_shm=1" if is_wal else "")
    try:
        source = open_as(status, uri)
    except sqlite3.OperationalError as error:
        if is_wal and not is_open(path):
            return False
        if not is_wal and os.path.exists(path + "-journal") and "locked" not in str(error):
            return copy_idle(path, status, target, "-journal")
        raise
    try:
        if not has_opened(status):
            return False
        place = sqlite3.connect(target)
        try:
            # Whoever finds this copy half made removes it: it needs no journal.
            place.execute("PRAGMA journal_mode=OFF")
            place.execute("PRAGMA synchronous=OFF")
            source.backup(place)
        finally:
            place.close()
    finally:
        source.close()
    return True


def is_open(path):
    """Whether a database in WAL mode may be in use: it has a log and the index of one."""
    return os.path.exists(path + "-wal") and os.path.exists(path + "-shm")


def open_as(status, uri):
    """A connection within a read transaction, opened with the rights of the database's owner.

    An owner who cannot get there has no program that uses it: then root looks, who makes no file there either.
    """
    try:
        return open_with(status.st_uid, status.st_gid, uri)
    except sqlite3.OperationalError as error:
        if "unable to open" not in str(error) or os.getuid() != 0:
            raise
        return open_with(0, 0, uri)


def open_with(uid, gid, uri):
    with rights_of(uid, gid):
        source = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            source.execute("BEGIN")
            source.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        except sqlite3.DatabaseError:
            source.close()
            raise
        return source


def has_opened(status):
    """Whether this process has that very file open, and not what a link led to."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found = os.stat(f"/proc/self/fd/{name}")
            if (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino):
                return True
    return False


@contextlib.contextmanager
def rights_of(uid, gid):
    """Whatever is opened in the body is opened with an account's rights."""
    if os.getuid() != 0:
        yield
        return
    os.setgroups(groups_of(uid, gid))
    os.setegid(gid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def groups_of(uid, gid):
    try:
        return os.getgrouplist(pwd.getpwuid(uid).pw_name, gid)
    except KeyError:
        return [gid]


def copy_idle(path, status, target, sidecar):
    """Copy the files of a database that nobody has open, and let SQLite bring the copy in order.

    False where one of them was changed meanwhile: then somebody has it open.
    """
    before = [seen(path + suffix) for suffix in ("", *SIDECARS)]
    with open(os.open(path, trees.READ), "rb") as held:
        if not has_opened(status):
            return False
        share(held)
        pour(held, target)
        with contextlib.suppress(FileNotFoundError), open(os.open(path + sidecar, trees.READ), "rb") as log:
            pour(log, target + sidecar)
    if [seen(path + suffix) for suffix in ("", *SIDECARS)] != before:
        return False
    connection = sqlite3.connect(target, isolation_level=None)
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
    for suffix in SIDECARS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target + suffix)
    return True


def pour(file, target):
    with open(target, "wb") as place:
        shutil.copyfileobj(file, place, 1 << 20)


def share(file):
    """Lock a database as its readers do, so that nobody rolls a journal back or ends a log while it is copied."""
    end = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB, SHARED_SIZE, SHARED_FIRST)
            return
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
            if time.monotonic() > end:
                raise sqlite3.OperationalError("database is locked") from None
        time.sleep(0.1)


def seen(path):
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


# Looking at a copy


def count(status, target):
    """Whether a copy is sound, and how many rows its tables have, found out with its owner's rights."""
    connection = sqlite3.connect(f"file:{quote(os.fsencode(target))}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(status.st_gid)
            os.setuid(status.st_uid)
        connection.execute("PRAGMA trusted_schema=OFF")
        problem = unsound(connection)
        if problem:
            return {"problem": problem}
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        return {"tables": rows_of_tables(connection), "user_version": version}
    finally:
        connection.close()


def unsound(connection):
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if "no such" not in str(error):
            raise
        # It needs an extension that only its own program has: the copy can be made, not judged.
        return ""
    return "" if answer == "ok" else answer


def rows_of_tables(connection):
    tables = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    rows = {}
    for name, sql in tables:
        if (sql or "").upper().lstrip().startswith("CREATE VIRTUAL"):
            continue
        quoted = name.replace('"', '""')
        try:
            rows[name] = connection.execute(f'SELECT COUNT(*) FROM "{quoted}"').fetchone()[0]
        except sqlite3.OperationalError as error:
            if "no such" not in str(error):
                raise
    return rows
