"""Runs on the tenant, as the module ``trees`` of another script: looking at whole trees of files and copying them.

Live trees may lie in a directory of an account that means harm. There every name is looked up in a directory
that is open already, and no link is followed that somebody besides root could have made. The other side of each
call (a set, what is put aside, an unpacked archive) is in a directory that is root's alone.

An *entry* tells of one file, directory or link: ``path`` below its tree ("" for the tree itself), ``kind``,
``mode``, ``owner`` and ``group`` by name beside ``uid`` and ``gid``, ``mtime_ns``, and ``size`` and ``sha256`` of a
file or the ``target`` of a link.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import errno
import fnmatch
import grp
import hashlib
import os
import pwd
import stat

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
BLOCK = 1 << 18
ZEROS = bytes(BLOCK)
MOST_LINKS = 40
# Each level holds a descriptor, and an account could nest directories without end.
DEEPEST = 100
ABSENT = (FileNotFoundError, NotADirectoryError)
# What a name gives that went away, or was exchanged for something else, since it was looked at.
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EINVAL, errno.ENXIO)


class ForeignLink(OSError):
    """A link that somebody besides root could have put there; it is never followed."""


# Names


def open_parent(path):
    """The open directory that holds `path`, and its last name there.

    A link on the way is followed only where root alone decides where it leads: it and every directory up to it
    are root's and nobody else may write there.
    """
    names = [name for name in path.split("/") if name not in ("", ".")][::-1]
    directory, is_roots, links = os.open("/", DIRECTORY), True, 0
    try:
        while len(names) > 1:
            name = names.pop()
            status = os.fstat(directory)
            is_roots = is_roots and status.st_uid == 0 and not status.st_mode & 0o022
            target = link_target(name, directory)
            if target is not None:
                links += 1
                if not is_roots or links > MOST_LINKS or os.lstat(name, dir_fd=directory).st_uid != 0:
                    raise ForeignLink(errno.ELOOP, "a link that is not root's alone is not followed", path)
                names += [part for part in target.split("/") if part not in ("", ".")][::-1]
                name = "." if not target.startswith("/") else "/"
            following = os.open(name, DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = following
        return directory, names[0]
    except BaseException:
        os.close(directory)
        raise


def open_directory(path):
    """The directory `path`, open; a link in its own place is not followed."""
    parent, name = open_parent(path)
    try:
        return os.open(name, DIRECTORY, dir_fd=parent)
    finally:
        os.close(parent)


def open_below(base, relative):
    """The directory `relative` below `base`, open; no link below `base` is followed, whoever made it.

    Raises what :data:`ABSENT` names where it is not there, or something else than directories leads to it.
    """
    directory = open_directory(base)
    try:
        for name in filter(None, relative.split("/")):
            following = os.open(name, DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = following
        return directory
    except BaseException:
        os.close(directory)
        raise


def link_target(name, directory):
    """Where a link leads; None for what is no link or not there."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


def exists(name, directory):
    try:
        os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return False
    return True


def expand(path):
    """The paths that `path` stands for, whose last part may hold ``*`` and ``?``; without them itself, there or not."""
    base, _, pattern = path.rpartition("/")
    if not any(mark in pattern for mark in "*?"):
        return [path]
    try:
        directory = open_directory(base)
    except ABSENT:
        return []
    try:
        return [f"{base}/{name}" for name in sorted(os.listdir(directory)) if fnmatch.fnmatchcase(name, pattern)]
    finally:
        os.close(directory)


def is_excluded(relative, patterns):
    """Whether a pattern matches this path below its tree, part by part."""
    parts = relative.split("/")
    for pattern in patterns:
        wanted = pattern.strip("/").split("/")
        if len(wanted) == len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted)):
            return True
    return False


# What is there


def entry_of(status, relative):
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return {
        "path": relative,
        "kind": kinds.get(stat.S_IFMT(status.st_mode), "special"),
        "mode": f"{stat.S_IMODE(status.st_mode):04o}",
        "owner": name_of(pwd.getpwuid, status.st_uid),
        "group": name_of(grp.getgrgid, status.st_gid),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime_ns": status.st_mtime_ns,
    }


def name_of(find, number):
    """The name that `find` gives a number, or the number as text."""
    try:
        return find(number)[0]
    except KeyError:
        return str(number)


def number_of(find, name, number):
    """The number of an account or a group here; where nobody has the name, the number that it had there."""
    try:
        return find(name)[2]
    except KeyError:
        return number


def walk(parent, name, exclude=(), relative="", depth=0):
    """Yield (entry, parent directory, name) of a tree, each directory before what is in it.

    What is excluded does not come at all; a special file, and a directory that lies too deep, comes with the kind
    ``special``. The parent is open only until the next one is asked for.
    """
    try:
        status = os.lstat(name, dir_fd=parent)
    except ABSENT:
        return
    entry = entry_of(status, relative)
    if entry["kind"] != "directory":
        yield entry, parent, name
        return
    try:
        directory = os.open(name, DIRECTORY, dir_fd=parent)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return
    try:
        if depth >= DEEPEST:
            entry["kind"] = "special"
        yield entry, parent, name
        for child in sorted(os.listdir(directory)) if depth < DEEPEST else ():
            below = f"{relative}/{child}" if relative else child
            if not is_excluded(below, exclude):
                yield from walk(directory, child, exclude, below, depth + 1)
    finally:
        os.close(directory)


def describe(path, exclude=()):
    """The entries of a tree with the digests of its files, as :func:`copy_tree` gives them; [] where it is absent."""
    found: list = []  # type: ignore[type-arg]
    try:
        parent, name = open_parent(path)
    except ABSENT:
        return found
    try:
        for entry, directory, child in walk(parent, name, exclude):
            if entry["kind"] in ("directory", "special") or read_leaf(directory, child, entry):
                found.append(entry)
    finally:
        os.close(parent)
    return found


def read_leaf(directory, name, entry, place=None):
    """Complete the entry of one file or link, and copy it to `place`; False where it went away meanwhile."""
    try:
        if entry["kind"] == "link":
            entry["target"] = os.readlink(name, dir_fd=directory)
            return True
        with open(os.open(name, READ, dir_fd=directory), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return False
            if place is None:
                entry["sha256"], entry["size"] = pour(file, None, status.st_size)
            else:
                with open(os.open(place, CREATE, 0o600), "wb") as copy:
                    entry["sha256"], entry["size"] = pour(file, copy, status.st_size)
    except OSError as error:
        if error.errno not in GONE:
            raise
        return False
    return True


def entries(path, exclude=()):
    """The entries of a tree without the contents of its files; [] where it is absent."""
    try:
        parent, name = open_parent(path)
    except ABSENT:
        return []
    try:
        return [entry for entry, _, _ in walk(parent, name, exclude)]
    finally:
        os.close(parent)


def matching(path, patterns):
    """The paths below the tree that a pattern matches."""
    if not patterns:
        return []
    return [entry["path"] for entry in entries(path) if is_excluded(entry["path"], patterns)]


def look(path):
    """The entry of this one path, with the digest of a file; None where it is absent."""
    try:
        parent, name = open_parent(path)
    except ABSENT:
        return None
    try:
        entry = entry_of(os.lstat(name, dir_fd=parent), "")
        is_leaf = entry["kind"] in ("file", "link")
        return entry if not is_leaf or read_leaf(parent, name, entry) else None
    except ABSENT:
        return None
    finally:
        os.close(parent)


def measure(path, exclude=()):
    """How many bytes a copy of the tree takes, with a block for each entry."""
    try:
        parent, name = open_parent(path)
    except ABSENT:
        return 0
    try:
        total = 0
        for entry, directory, child in walk(parent, name, exclude):
            total += 4096
            if entry["kind"] == "file":
                status = os.lstat(child, dir_fd=directory)
                # A sparse file is copied as one.
                total += min(status.st_size, status.st_blocks * 512)
        return total
    finally:
        os.close(parent)


# Copying


def copy_tree(source, target, exclude=(), flush=True):
    """Copy the file, link or directory `source` to `target`, which is not there yet, and flush it to the disk.

    Gives (copied, skipped): the entries of what was copied, with the digests of what was read, and the paths of
    sockets, pipes, devices and directories that lie too deep. ([], []) where `source` is absent. Hard links become
    copies.
    """
    copied: list = []  # type: ignore[type-arg]
    skipped: list = []  # type: ignore[type-arg]
    directories = []
    try:
        parent, name = open_parent(source)
    except ABSENT:
        return copied, skipped
    try:
        for entry, directory, child in walk(parent, name, exclude):
            place = f"{target}/{entry['path']}" if entry["path"] else target
            if entry["kind"] == "special":
                skipped.append(entry["path"])
                continue
            if entry["kind"] == "directory":
                os.mkdir(place, 0o700)
                directories.append((place, entry))
            elif read_leaf(directory, child, entry, place):
                if entry["kind"] == "link":
                    os.symlink(entry["target"], place)
                dress(place, entry)
            else:
                continue
            copied.append(entry)
    finally:
        os.close(parent)
    # From the inside to the outside, because what is put into a directory changes its time.
    for place, entry in reversed(directories):
        dress(place, entry)
    if flush:
        os.sync()
    return copied, skipped


def pour(file, copy, limit):
    """Read up to `limit` bytes, so that a file that grows comes to an end, and write them; digest and size."""
    digest, size = hashlib.sha256(), 0
    while block := file.read(min(BLOCK, limit - size)):
        digest.update(block)
        size += len(block)
        if copy is None:
            continue
        if block == ZEROS[: len(block)]:
            copy.seek(len(block), os.SEEK_CUR)
        else:
            copy.write(block)
    if copy is not None:
        copy.flush()
        copy.truncate(size)
    return digest.hexdigest(), size


def dress(place, entry, directory=None):
    """Give what lies at `place`, in a directory of root's own, its owner, group, mode and time."""
    owner = number_of(pwd.getpwnam, entry["owner"], entry["uid"])
    group = number_of(grp.getgrnam, entry["group"], entry["gid"])
    os.chown(place, owner, group, dir_fd=directory, follow_symlinks=False)
    if entry["kind"] != "link":
        os.chmod(place, int(entry["mode"], 8), dir_fd=directory)
    times = (entry["mtime_ns"], entry["mtime_ns"])
    os.utime(place, ns=times, dir_fd=directory, follow_symlinks=False)
