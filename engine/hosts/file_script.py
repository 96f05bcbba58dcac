"""Runs on the tenant: reads or replaces one file in a directory that may be somebody's who means harm.

Its argument is a JSON object: the `action` and what that needs; new content comes over standard input.
Every name is looked up in a directory that is open already, so that nobody can exchange it on the way.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import binascii
import grp
import json
import os
import pwd
import stat
import sys

PARAMETERS = json.loads(sys.argv[1])

DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LINKS = 40
ABSENT_STATUS = 66
ABSENT = (FileNotFoundError, NotADirectoryError)


class ForeignLink(Exception):
    """A link that somebody besides root could have put there; it is never followed."""


def locate(path, follow):
    """The open directory that holds the file, and the file's name in it.

    A link on the way, and with `follow` also one in the file's place, is followed only where root alone decides
    where it leads: it and every directory up to it are root's and nobody else may write there.
    """
    names = parts(path)
    directory, place, is_roots, links = os.open("/", DIRECTORY), "", True, 0
    while names:
        name = names.pop()
        status = os.fstat(directory)
        is_roots = is_roots and status.st_uid == 0 and not status.st_mode & 0o022
        if not names and not follow:
            return directory, name
        target = link_target(name, directory)
        if target is None and not names:
            return directory, name
        base = directory
        if target is None:
            directory, place = os.open(name, DIRECTORY, dir_fd=base), f"{place}/{name}"
        else:
            links += 1
            if not is_roots or links > LINKS or os.lstat(name, dir_fd=base).st_uid != 0:
                raise ForeignLink(f"{place}/{name}")
            names += parts(target)
            if not target.startswith("/"):
                continue
            directory, place = os.open("/", DIRECTORY), ""
        os.close(base)
    sys.exit(f"{path} is a directory")


def parts(path):
    """The names of a path, the last one first."""
    return [name for name in path.split("/") if name not in ("", ".")][::-1]


def link_target(name, directory):
    """Where a link leads; None for what is no link or not there."""
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


def content_of(directory, name):
    """The bytes and the status of a regular file."""
    # Without O_NONBLOCK a pipe would not open before it has a writer.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=directory), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            sys.exit(f"{PARAMETERS['path']} is not a regular file")
        content = file.read(PARAMETERS["limit"] + 1)
    if len(content) > PARAMETERS["limit"]:
        sys.exit(f"{PARAMETERS['path']} is larger than {PARAMETERS['limit']} bytes")
    return content, status


def replace(directory, name, content, owner, group, mode):
    """Put a whole new file in the place of whatever is there, a link included."""
    temporary = f".tenantry.{os.urandom(8).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(temporary, flags, 0o600, dir_fd=directory), "wb") as file:
        try:
            file.write(content)
            file.flush()
            os.fchown(file.fileno(), owner, group)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            os.unlink(temporary, dir_fd=directory)
            raise
        written = os.fstat(file.fileno())
    os.fsync(directory)
    # Who owns the directory could have exchanged the temporary file before it got its name.
    if not os.path.samestat(written, os.stat(name, dir_fd=directory, follow_symlinks=False)):
        sys.exit(f"{PARAMETERS['path']} was exchanged by somebody while it was written")


def received():
    content = sys.stdin.buffer.read()
    if len(content) != PARAMETERS["size"]:
        sys.exit("the content did not arrive whole")
    return content


def number_of(find, name):
    try:
        return find(name)[2]
    except KeyError:
        sys.exit(f"there is no {name}")


def read():
    """Print the file's bytes; a link in its place is not the file."""
    directory, name = locate(PARAMETERS["path"], follow=False)
    if link_target(name, directory) is not None:
        sys.exit(ABSENT_STATUS)
    sys.stdout.buffer.write(content_of(directory, name)[0])


def text():
    """Print ``present`` and the file in base64, ``absent``, or ``link`` and a foreign link's name."""
    try:
        content, _ = content_of(*locate(PARAMETERS["path"], follow=True))
    except ABSENT:
        print("absent")
    except ForeignLink as link:
        print(f"link\n{link}")
    else:
        print(f"present\n{binascii.b2a_base64(content, newline=False).decode()}")


def write():
    """Replace the file, never what a link in its place leads to."""
    owner, group = number_of(pwd.getpwnam, PARAMETERS["owner"]), number_of(grp.getgrnam, PARAMETERS["group"])
    content = received()
    directory, name = locate(PARAMETERS["path"], follow=False)
    replace(directory, name, content, owner, group, int(PARAMETERS["mode"], 8))


def edit():
    """Replace the file if it still has the digest of what was edited, after one copy of it; a link stays one."""
    import hashlib

    content = received()
    directory, name = locate(PARAMETERS["path"], follow=True)
    before, status = content_of(directory, name)
    if hashlib.sha256(before).hexdigest() != PARAMETERS["digest"]:
        sys.exit(f"{PARAMETERS['path']} was changed by somebody meanwhile")
    facts = status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)
    keep(PARAMETERS["copy"], before, facts)
    replace(directory, name, content, *facts)


def keep(path, content, facts):
    """Keep the first content under a name of root's own; an earlier copy stays."""
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        directory, name = locate(path, follow=False)
        replace(directory, name, content, *facts)


os.umask(0o077)
try:
    {"read": read, "text": text, "write": write, "edit": edit}[PARAMETERS["action"]]()
except ForeignLink as link:
    sys.exit(f"{link} is a link that somebody besides root could have made, so it is not followed")
except OSError as error:
    is_absent = PARAMETERS["action"] == "read" and isinstance(error, ABSENT)
    sys.exit(ABSENT_STATUS if is_absent else f"{PARAMETERS['path']}: {error.strerror}")
