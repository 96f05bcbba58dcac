"""Runs on the tenant: prints one archive on standard output, and how that went as one line on standard error.

Reads ``PARAMETERS``: ``nonce``, ``home`` (the engine's directory), ``level`` (zstd's), ``reserve_bytes`` (to stay
free), ``stall_seconds`` (how long nobody may take anything), ``description`` (goes into the first member),
``contents`` [{name, path, kind, exclude}] and ``files`` (further paths). The line is ``tenantry-archive NONCE {"tar",
"zstd", "problem", "needed", "free"}``. Nothing of the tenant's is changed; the copies of databases are in a private
directory that is removed whatever happens.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import contextlib
import errno
import json
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
trees: Any = globals()["trees"]
databases: Any = globals()["databases"]

OUTPUT = 1
LOOK_SECONDS = 0.5
PIPE_BYTES = 1 << 18
# tar leaves the live databases out by their names, so the copies come from below another one, which it takes away.
COPIES = "tenantry-copies"
# The engine's own: what a run leaves there for itself is none of the tenant.
OWN = ("staging", "recovery", "aside", "restore", "deadman", "snapshots", "input")


class Problem(Exception):
    """Why there is no archive, in words for a person; `facts` go beside them."""

    def __init__(self, text, **facts):
        super().__init__(text)
        self.facts = facts


def main(parameters):
    home = parameters["home"]
    parent = os.path.join(home, "staging")
    os.makedirs(parent, mode=0o700, exist_ok=True)
    # Of the form that the next run's claim removes, should this one be killed.
    staging = os.path.join(parent, secrets.token_hex(6))
    os.mkdir(staging, 0o700)
    try:
        return make(parameters, staging)
    finally:
        shutil.rmtree(staging)


def make(parameters, staging):
    roots, contents = find_roots(parameters)
    found = find_databases(roots)
    check_room(found, staging, parameters["reserve_bytes"])
    tree = os.path.join(staging, "tree")
    copied = copy_all(found, tree)
    description = {**parameters["description"], "nonce": parameters["nonce"], "contents": contents, "databases": copied}
    description["clock"] = time.time()
    description["marker"] = text_of(parameters, "version")
    description["applied"] = text_of(parameters, "applied.json")
    write_json(os.path.join(tree, "tenantry/backup.json"), description)
    write_json(os.path.join(tree, "tenantry/end.json"), {"nonce": parameters["nonce"]})
    lists = {
        "begin": ["/tenantry/backup.json"],
        "live": [path for path, _ in roots],
        "end": [*(f"/{COPIES}{path}" for path in copied), "/tenantry/end.json"],
    }
    for name, paths in lists.items():
        with open(os.path.join(staging, name), "wb") as file:
            file.write(b"".join(os.fsencode(path.lstrip("/")) + b"\0" for path in paths))
    return stream(tar_command(roots, [path for path, _ in found], parameters, staging), parameters)


# What goes in


def find_roots(parameters):
    """[(path, exclude)] of what is there, none below another; and the contents with the paths that stand for them."""
    roots, contents = [], []
    for content in parameters["contents"]:
        paths = [path for path in trees.expand(content["path"]) if os.path.lexists(path)]
        if paths == [content["path"]] and os.path.isdir(paths[0]) and os.path.islink(paths[0]):
            raise Problem(f"{paths[0]} is a link: name the directory that it leads to in the fleet's contents")
        contents.append({**content, "found": paths})
        roots += [(path, content["exclude"]) for path in paths]
    own = [os.path.join(parameters["home"], name) for name in ("version", "applied.json", "receipts")]
    roots += [(path, []) for path in (*own, *parameters["files"]) if os.path.lexists(path)]
    taken: dict = {}  # type: ignore[type-arg]
    for path, exclude in sorted(roots, key=lambda root: root[0].count("/")):
        if not any(path == other or path.startswith(other + "/") for other in taken):
            taken[path] = exclude
    return sorted(taken.items()), contents


def find_databases(roots):
    return [database for path, exclude in roots for database in databases.find(path, exclude)]


def check_room(found, staging, reserve):
    needed = sum(databases.size_with_log(path, status) for path, status in found)
    free = shutil.disk_usage(staging).free
    if free < needed + reserve:
        raise Problem("no room for copies of the databases", needed=needed + reserve, free=free)


def copy_all(found, tree):
    """Copy the databases into `tree`; {path: what is known of it}."""
    os.makedirs(os.path.join(tree, "tenantry"), mode=0o700)
    copied = {}
    for path, _ in found:
        target = f"{tree}/{COPIES}{path}"
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        known = databases.copy(path, target, await_child)
        if known is not None:
            copied[path] = known
    return copied


def await_child(reading, child):
    """The next bytes from a child that copies; without anybody to send an archive to, the child ends."""
    while not select.select([reading], [], [], LOOK_SECONDS)[0]:
        if has_hung_up():
            os.kill(child, signal.SIGKILL)
            raise Problem("the connection ended")
    return os.read(reading, PIPE_BYTES)


def text_of(parameters, name):
    try:
        with open(os.path.join(parameters["home"], name), encoding="utf-8", errors="surrogateescape") as file:
            return file.read(1 << 20)
    except FileNotFoundError:
        return None


def write_json(path, value):
    with open(path, "w", encoding="ascii") as file:
        json.dump(value, file, indent=1)


# Streaming


def tar_command(roots, found, parameters, staging):
    names = [os.path.join(parameters["home"], name) for name in OWN]
    names += [path + suffix for path in found for suffix in ("", *databases.SIDECARS)]
    patterns = [f"{literal(path)}/{pattern.strip('/')}" for path, exclude in roots for pattern in exclude]
    tree = os.path.join(staging, "tree")
    return [
        "tar", "--create", "--file=-", "--format=posix", "--sparse", "--sort=name", "--blocking-factor=128",
        "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        "--anchored", "--no-wildcards", *(f"--exclude={name.lstrip('/')}" for name in names),
        "--wildcards", "--no-wildcards-match-slash", *(f"--exclude={pattern.lstrip('/')}" for pattern in patterns),
        "--null", f"--transform=flags=rSH;s,^{COPIES}/,,",
        f"--directory={tree}", f"--files-from={staging}/begin",
        "--directory=/", f"--files-from={staging}/live",
        f"--directory={tree}", f"--files-from={staging}/end",
    ]  # fmt: skip


def literal(path):
    return re.sub(r"([\\*?\[])", r"\\\1", path)


def stream(command, parameters):
    environment = {**os.environ, "LC_ALL": "C"}
    tar = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment)
    compress = ["zstd", "--quiet", "--stdout", "--check", f"-{parameters['level']}"]
    zstd = subprocess.Popen(compress, stdin=tar.stdout, stdout=OUTPUT, env=environment)
    reading: Any = tar.stdout
    reading.close()
    try:
        watch(zstd, parameters["stall_seconds"])
        return {"tar": tar.wait(), "zstd": zstd.returncode}
    finally:
        for process in (zstd, tar):
            if process.poll() is None:
                process.kill()
                process.wait()


def watch(process, stall_seconds):
    """Wait for the end; nobody at the other end, or nobody who takes anything, ends it too."""
    written, since = -1, time.monotonic()
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=LOOK_SECONDS)
            return
        if has_hung_up():
            raise Problem("the connection ended")
        now = bytes_written(process.pid)
        if now != written or can_write():
            written, since = now, time.monotonic()
        elif time.monotonic() - since > stall_seconds:
            raise Problem(f"nothing of the archive was taken for {stall_seconds:g} s")


def bytes_written(pid):
    try:
        with open(f"/proc/{pid}/io") as file:
            return next(line for line in file if line.startswith("wchar"))
    except (OSError, StopIteration):
        return ""


def has_hung_up():
    return bool(events(0) & (select.POLLERR | select.POLLHUP | select.POLLNVAL))


def can_write():
    return bool(events(select.POLLOUT) & select.POLLOUT)


def events(wanted):
    poll = select.poll()
    poll.register(OUTPUT, wanted)
    return dict(poll.poll(0)).get(OUTPUT, 0)


def stop(number, frame):
    sys.exit(128 + number)


def run(parameters):
    """Make the archive; returns what the line says."""
    try:
        return main(parameters)
    except Problem as problem:
        return {"problem": str(problem), **problem.facts}
    except databases.CannotCopy as problem:
        return {"problem": str(problem)}
    except databases.NoRoom as problem:
        return {"problem": f"the disk filled up while {problem} was copied", "free": 0}
    except OSError as error:
        if error.errno == errno.ENOSPC:
            return {"problem": "the disk filled up", "free": 0}
        return {"problem": f"{error.filename or 'the archive'}: {error.strerror}"}


os.umask(0o077)
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, stop)
answer = run(PARAMETERS)
with contextlib.suppress(BrokenPipeError):
    sys.stderr.write(f"\ntenantry-archive {PARAMETERS['nonce']} {json.dumps(answer)}\n")
    sys.stderr.flush()
# What would follow on standard output is not part of the archive.
sys.exit(0 if answer.get("tar") in (0, 1) and answer.get("zstd") == 0 else 1)
