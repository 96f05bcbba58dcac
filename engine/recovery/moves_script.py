"""Runs on the tenant, as the module ``moves`` of another script: moving and replacing whole trees, crash-safely.

What is replaced is moved aside, never removed. Live trees may lie in a directory of an account that means harm;
see ``trees_script.py``. Everything is on the disk when a function returns.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import errno
import grp
import hashlib
import itertools
import json
import os
import pwd
import stat
from typing import Any

trees: Any = globals()["trees"]


def free_name(name, directory):
    """`name`, or with a number where something has it already: what is put aside replaces nothing."""
    candidate, count = name, 0
    while trees.exists(candidate, directory):
        count += 1
        candidate = f"{name}.{count}"
    return candidate


def move(source, target):
    """Move a file, link or directory; both sides are looked up link-safe. The target's directory must be there."""
    from_directory, from_name = trees.open_parent(source)
    to_directory, to_name = trees.open_parent(target)
    try:
        move_between(from_directory, from_name, to_directory, to_name)
        os.fsync(to_directory)
        os.fsync(from_directory)
    finally:
        os.close(from_directory)
        os.close(to_directory)


def move_between(from_directory, name, to_directory, new_name):
    """Move one name from an open directory into another; one step, because both are on the same file system."""
    os.rename(name, new_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)


def remove_tree(name, directory=None):
    """Remove a file, link or whole directory without following a link; nothing where it is absent."""
    try:
        status = os.lstat(name, dir_fd=directory)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name, dir_fd=directory)
        return
    inside = os.open(name, trees.DIRECTORY, dir_fd=directory)
    try:
        for child in os.listdir(inside):
            remove_tree(child, inside)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=directory)


def temporary_name(name, directory):
    """The name of a file that is to become `name`: the same in each attempt, so that a death leaves none behind."""
    temporary = ".tenantry." + hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    try:
        remove_tree(temporary, directory)
    except OSError:
        # Whoever owns the directory may play with the name.
        return f".tenantry.{os.urandom(8).hex()}"
    return temporary


def place_file(source, entry, live):
    """Put a copy of root's own `source`, a file or link, in the place of `live`, atomically, in a directory that is."""
    directory, name = trees.open_parent(live)
    temporary = temporary_name(name, directory)
    try:
        if entry["kind"] == "link":
            os.symlink(entry["target"], temporary, dir_fd=directory)
            trees.dress(temporary, entry, directory)
        else:
            made = os.open(temporary, trees.CREATE, 0o600, dir_fd=directory)
            with open(source, "rb") as file, open(made, "wb") as copy:
                # By descriptor: who owns the directory could exchange the name.
                trees.pour(file, copy, os.fstat(file.fileno()).st_size)
                owner = trees.number_of(pwd.getpwnam, entry["owner"], entry["uid"])
                os.fchown(copy.fileno(), owner, trees.number_of(grp.getgrnam, entry["group"], entry["gid"]))
                os.fchmod(copy.fileno(), int(entry["mode"], 8))
                os.utime(copy.fileno(), ns=(entry["mtime_ns"], entry["mtime_ns"]))
                os.fsync(copy.fileno())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    except BaseException:
        remove_tree(temporary, directory)
        raise
    finally:
        os.close(directory)


def place_link(link, target):
    """Let `link`, in a directory that is there, lead to `target`, atomically."""
    directory, name = trees.open_parent(link)
    temporary = temporary_name(name, directory)
    try:
        os.symlink(target, temporary, dir_fd=directory)
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        os.fsync(directory)
    finally:
        remove_tree(temporary, directory)
        os.close(directory)


def dress_directory(path, entry):
    """Give a live directory the owner, group and mode of an entry."""
    directory = trees.open_directory(path)
    try:
        owner = trees.number_of(pwd.getpwnam, entry["owner"], entry["uid"])
        os.fchown(directory, owner, trees.number_of(grp.getgrnam, entry["group"], entry["gid"]))
        os.fchmod(directory, int(entry["mode"], 8))
    finally:
        os.close(directory)


def same_file_system(live, other):
    """Whether moving between the two is one step; a path that is absent counts as its nearest directory."""
    return device_of(live) == device_of(other)


def device_of(path):
    while True:
        try:
            directory, name = trees.open_parent(path)
            try:
                return os.lstat(name, dir_fd=directory).st_dev
            finally:
                os.close(directory)
        except trees.ABSENT:
            path = os.path.dirname(path)


def replace_children(live, new, aside, journal, keep=()):
    """Make the children of the directory `live` those of `new`, by moving; what was there goes to `aside`.

    May be called again with the same arguments after a crash at any point, and then goes on. `journal` is a file
    beside `aside` that says how far it came. Children of `live` that a pattern in `keep` matches stay. Without a
    directory `new` nothing comes. All must be on one file system. The directory `live` itself stays, gets the owner
    and mode of `new`, and is made if it is absent; a link or file in its place goes aside.
    """
    state = (read_json(journal) or {"stage": "away"})["stage"]
    if state == "done":
        return
    os.makedirs(aside, mode=0o700, exist_ok=True)
    kept = trees.open_directory(aside)
    directory = made_directory(live, kept)
    try:
        if state == "away":
            # What is put aside can take this way back.
            dress_like(kept, os.fstat(directory))
            write_json(journal, {"stage": "away", "live": live})
            for name in sorted(os.listdir(directory)):
                if not trees.is_excluded(name, keep):
                    move_between(directory, name, kept, free_name(name, kept))
            os.fsync(kept)
            os.fsync(directory)
            # From here on the children of `live` are the new ones, and must not go aside in a second attempt.
            write_json(journal, {"stage": "in", "live": live})
        if os.path.isdir(new):
            move_in(new, directory, kept)
        os.fsync(kept)
        os.fsync(directory)
        write_json(journal, {"stage": "done", "live": live})
    finally:
        os.close(directory)
        os.close(kept)


def move_in(new, directory, kept):
    coming = trees.open_directory(new)
    try:
        for name in sorted(os.listdir(coming)):
            # Whoever owns the directory may have made something there since.
            if trees.exists(name, directory):
                move_between(directory, name, kept, free_name(name, kept))
            move_between(coming, name, directory, name)
        dress_like(directory, os.fstat(coming))
    finally:
        os.close(coming)


def dress_like(directory, status):
    """Give an open directory the owner, group and mode of another."""
    os.fchown(directory, status.st_uid, status.st_gid)
    os.fchmod(directory, stat.S_IMODE(status.st_mode))


def replace_file(live, new, aside, journal):
    """The same for a file or link: `live` becomes `new`, if there is one, and what was there goes to `aside`."""
    stage = (read_json(journal) or {"stage": "away"})["stage"]
    if stage == "done":
        return
    os.makedirs(aside, mode=0o700, exist_ok=True)
    place = f"{aside}/{os.path.basename(live)}"
    if stage == "away":
        write_json(journal, {"stage": "away", "live": live, "kind": "file"})
        if trees.look(live) and not os.path.lexists(place):
            move(live, place)
        write_json(journal, {"stage": "in", "live": live, "kind": "file"})
    if os.path.lexists(new):
        move(new, live)
    write_json(journal, {"stage": "done", "live": live, "kind": "file"})


def give_back(live, saved, aside, swap_journal, journal, keep=()):
    """Undo :func:`replace_children` or :func:`replace_file`, which moved to `saved` by `swap_journal`, if it began.

    What came then goes to `aside`. May be called again after a crash at any point, like those.
    """
    swap = read_json(swap_journal)
    if swap is None:
        return
    is_file = swap.get("kind") == "file"
    if swap["stage"] != "away":
        os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
        if is_file:
            replace_file(live, f"{saved}/{os.path.basename(live)}", aside, journal)
        else:
            replace_children(live, saved, aside, journal, keep)
    elif is_file:
        if os.path.lexists(f"{saved}/{os.path.basename(live)}"):
            move(f"{saved}/{os.path.basename(live)}", live)
    elif os.path.isdir(saved):
        give_rest_back(live, saved, aside)


def give_rest_back(live, saved, aside):
    """Of a swap that had only begun to move things away, nothing new is there: what went comes back beside the rest."""
    os.makedirs(aside, mode=0o700, exist_ok=True)
    kept = trees.open_directory(aside)
    directory = made_directory(live, kept)
    try:
        move_in(saved, directory, kept)
        os.fsync(directory)
    finally:
        os.close(directory)
        os.close(kept)


def made_directory(path, kept):
    """The directory `path`, open, made where it is absent; what else has its place goes aside."""
    parent, name = trees.open_parent(path)
    try:
        if trees.exists(name, parent) and not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            move_between(parent, name, kept, free_name(name, kept))
        if not trees.exists(name, parent):
            os.mkdir(name, 0o700, dir_fd=parent)
            os.fsync(parent)
        return os.open(name, trees.DIRECTORY, dir_fd=parent)
    finally:
        os.close(parent)


def put_aside(path, aside):
    """Move `path`, whatever it is, into the directory `aside` of root's own, under its whole path."""
    kept = place_aside(path, aside)
    parent, name = trees.open_parent(path)
    try:
        try:
            move_between(parent, name, kept, free_name(name, kept))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            # /var is often a file system of its own.
            trees.copy_tree(path, f"/proc/self/fd/{kept}/{free_name(name, kept)}")
            remove_tree(name, parent)
        os.fsync(kept)
        os.fsync(parent)
    finally:
        os.close(parent)
        os.close(kept)


def place_aside(path, aside):
    """The open directory for what `path` names: below `aside`, or beside it where a link went there before."""
    for count in itertools.count():
        base = f"{aside}.{count}" if count else aside
        os.makedirs(base, mode=0o700, exist_ok=True)
        directory = trees.open_directory(base)
        try:
            for name in filter(None, os.path.dirname(path).split("/")):
                if not trees.exists(name, directory):
                    os.mkdir(name, 0o700, dir_fd=directory)
                following = os.open(name, trees.DIRECTORY, dir_fd=directory)
                os.close(directory)
                directory = following
            return directory
        except NotADirectoryError:
            os.close(directory)
    raise AssertionError("unreachable")


def keep_copy(path, aside):
    """Keep the file or link `path` in `aside` as well, so that its place is never empty."""
    kept = place_aside(path, aside)
    parent, name = trees.open_parent(path)
    try:
        try:
            os.link(name, free_name(name, kept), src_dir_fd=parent, dst_dir_fd=kept, follow_symlinks=False)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            trees.copy_tree(path, f"/proc/self/fd/{kept}/{free_name(name, kept)}")
        os.fsync(kept)
    finally:
        os.close(parent)
        os.close(kept)


def ensure_directory(path):
    """Make the directory `path` and those above it where they are absent."""
    try:
        os.close(trees.open_directory(path))
    except FileNotFoundError:
        ensure_directory(os.path.dirname(path))
        parent, name = trees.open_parent(path)
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
            os.fsync(parent)
        finally:
            os.close(parent)


# Root's own files


def read_json(path):
    """What a file of root's own says; None where it is absent."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return None


def write_json(path, value):
    """Replace a file of root's own, atomically and durably, with mode 0600."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True) + "\n")


def write_text(path, text):
    """The same for any text."""
    temporary = path + ".partial"
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        remove_tree(temporary)
        raise
    sync_directory(os.path.dirname(path))


def sync_directory(path):
    directory = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
