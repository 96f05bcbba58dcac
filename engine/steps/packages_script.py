"""Runs on the host, as root: installs Debian packages without prompt, surprise or broken lock.

Reads ``PARAMETERS`` (set by the sender): `names`, `lock_seconds` and `repair`. Leaves ``RESULT`` with an
`outcome` of installed, locked, interrupted or failed. Lock files are looked at and never deleted.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import fcntl
import os
import re
import struct
import subprocess
import time

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]

LOCKS = (
    "/var/lib/dpkg/lock-frontend",
    "/var/lib/dpkg/lock",
    "/var/lib/apt/lists/lock",
    "/var/cache/apt/archives/lock",
)
POLL_SECONDS = 0.5
LAST_LINES = 12

# What other programs and hooks that apt starts must not do: ask somebody, or restart a service.
ENVIRONMENT = {
    **os.environ,
    "DEBIAN_FRONTEND": "noninteractive",
    "DEBCONF_NONINTERACTIVE_SEEN": "true",
    "APT_LISTCHANGES_FRONTEND": "none",
    "NEEDRESTART_MODE": "l",
    "NEEDRESTART_SUSPEND": "1",
    "UCF_FORCE_CONFFOLD": "1",
    "LC_ALL": "C.UTF-8",
}
# A locally edited configuration file stays, and one that is missing stays missing only if somebody removed it.
KEEP = ("--force-confdef", "--force-confold")

# What apt says where a moment's patience is the cure.
LOCKED = re.compile(r"Could not get lock|Unable to acquire the dpkg frontend lock|is another process using it")
TOO_EARLY = re.compile(r"is not valid yet")
INTERRUPTED = re.compile(r"dpkg was interrupted")
KEPT = re.compile(r"Configuration file '([^']+)'")


class Locked(Exception):
    pass


def holder(path):
    """Who holds the lock, as (pid, command), or None. Asks the kernel, and takes nothing."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        # struct flock: type, whence, start, length, process.
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
    finally:
        os.close(descriptor)
    if answer[0] == fcntl.F_UNLCK:
        return None
    return answer[4], command_of(answer[4])


def command_of(pid):
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:  # noqa: UP031
            return file.read(200).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "a process that has ended"


def held():
    for path in LOCKS:
        found = holder(path)
        if found:
            return "{} is held by process {} ({})".format(path, *found)
    return None


class Patience:
    """Waits for locks, up to one cap over everything that this script does."""

    def __init__(self, seconds):
        self.deadline = time.monotonic() + seconds
        self.waited = 0.0

    def pause(self, reason):
        if time.monotonic() >= self.deadline:
            raise Locked(reason)
        time.sleep(POLL_SECONDS)
        self.waited += POLL_SECONDS

    def await_locks(self):
        while True:
            reason = held()
            if reason is None:
                return
            self.pause(reason)


def run(*argv):
    done = subprocess.run(
        argv, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode(errors="replace")


def patiently(patience, *argv):
    """Run a package command; start it again while it only says that it is locked out, or too early."""
    while True:
        patience.await_locks()
        status, output = run(*argv)
        if status == 0 or not (LOCKED.search(output) or TOO_EARLY.search(output)):
            return status, output
        lines = [line for line in output.splitlines() if LOCKED.search(line) or TOO_EARLY.search(line)]
        patience.pause(held() or lines[-1].strip())


def missing(names):
    """Those of `names` that are not completely installed."""
    _, output = run("dpkg-query", "--show", "--showformat=${Package} ${db:Status-Status}\\n", *names)
    there = {line.split()[0] for line in output.splitlines() if line.endswith(" installed")}
    return [name for name in names if name not in there]


def interrupted():
    """Whether an earlier dpkg did not end its work."""
    if os.listdir("/var/lib/dpkg/updates"):
        return True
    _, output = run("dpkg-query", "--show", "--showformat=${db:Status-Status}\\n")
    return bool({"half-installed", "unpacked", "half-configured"} & set(output.split()))


def kept(output):
    """The configuration files of which dpkg kept the local version."""
    found: list[str] = []
    current = ""
    for line in output.splitlines():
        match = KEPT.search(line)
        current = match.group(1) if match else current
        if "Keeping old config file" in line and current not in ("", *found):
            found.append(current)
    return found


def failed(what, status, output):
    lines = [line.strip() for line in output.splitlines() if line.strip()][-LAST_LINES:]
    return {"outcome": "failed", "what": what, "status": status, "lines": lines}


def apt(*arguments):
    options = [item for option in KEEP for item in ("-o", "Dpkg::Options::=" + option)]
    return ("apt-get", "--quiet", "--yes", *options, *arguments)


def install(names, patience, repair):
    repaired = False
    if not missing(names):
        return {"outcome": "installed", "installed": [], "kept": [], "repaired": False}
    patience.await_locks()
    if interrupted():
        if not repair:
            return {"outcome": "interrupted"}
        status, output = patiently(patience, "dpkg", *KEEP, "--configure", "-a")
        if status:
            return failed("dpkg --configure -a", status, output)
        repaired = True
        if not missing(names):
            return {"outcome": "installed", "installed": [], "kept": kept(output), "repaired": True}
    status, output = patiently(patience, *apt("update"))
    if status:
        return failed("apt-get update", status, output)
    wanted = missing(names)
    status, output = patiently(patience, *apt("--no-install-recommends", "install", *wanted))
    if INTERRUPTED.search(output):
        return {"outcome": "interrupted"}
    if status:
        return failed("apt-get install " + " ".join(wanted), status, output)
    return {"outcome": "installed", "installed": wanted, "kept": kept(output), "repaired": repaired}


def main():
    patience = Patience(PARAMETERS["lock_seconds"])
    try:
        result = install(PARAMETERS["names"], patience, PARAMETERS["repair"])
    except Locked as error:
        result = {"outcome": "locked", "reason": str(error)}
    return {**result, "waited": patience.waited}


RESULT = main()
