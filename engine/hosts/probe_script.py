"""The probe: prints one JSON object about this host between two marks. It changes nothing.

Sent over standard input to ``python3 -ISs -``, with ``probe_gateway_script.py`` behind it where the fleet
has a gateway or routes, and a last line that calls ``main``. Modules that cost time to load are imported
where they are needed. What it reports is raw; the reader judges it.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import sys

HOME = "/var/lib/tenantry"
PROPERTIES = ("LoadState", "ActiveState", "SubState", "MainPID", "NRestarts", "Result")


def main(nonce, parameters, more):
    """`parameters` holds units, files and what the functions of `more` are called with, by the same name."""
    answer = {
        "marker": read(HOME + "/version"),
        "applied": read(HOME + "/applied.json"),
        "receipts": receipts(),
        "owed": read(HOME + "/owed.json"),
        "held": read(HOME + "/held.json"),
        "armed": read(HOME + "/deadman/armed.json"),
        "recovery": recovery(),
        "host_lock": host_lock(),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "services": services(parameters["units"]),
        "files": {name: file_facts(path) for name, path in parameters["files"].items()},
        "clock": clock(),
    }
    for name, ask in more.items():
        answer[name] = ask(parameters[name])
    sys.stdout.write(f"\nBEGIN {nonce}\n{encode(answer)}\nEND {nonce}\n")


def encode(value):
    """JSON without the json module, which takes half as long to load as Python takes to start."""
    from _json import encode_basestring_ascii as quote

    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(key)}: {encode(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(encode, value)) + "]"
    if isinstance(value, str):
        return quote(value)
    # By identity: 0 and 1 are equal to False and True.
    words = {id(True): "true", id(False): "false", id(None): "null"}
    return words.get(id(value)) or repr(value)


def clock():
    import time

    return time.time()


def read(path, limit=1 << 20):
    """{"text": ...} of a file, {} where it is absent, {"error": ...} where it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            blocks = []
            while block := os.read(descriptor, limit):
                blocks.append(block)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return {}
    except OSError as error:
        return {"error": error.strerror}
    return {"text": b"".join(blocks).decode("utf-8", "surrogateescape")}


def receipts():
    try:
        names = sorted(os.listdir(HOME + "/receipts"))
    except FileNotFoundError:
        return {}
    return {name[:-5]: read(HOME + "/receipts/" + name) for name in names if name.endswith(".json")}


def recovery():
    """What each complete recovery set says of itself; one that is being made or removed has another name."""
    try:
        names = sorted(os.listdir(HOME + "/recovery"))
    except FileNotFoundError:
        return {}
    return {name: read(HOME + "/recovery/" + name + "/set.json") for name in names if "." not in name}


def host_lock():
    """Whether the lock is held, tried with a shared lock on a descriptor that can only read."""
    import fcntl

    try:
        descriptor = os.open(HOME + "/lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return {"held": False, "text": ""}
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return {"held": False, "text": ""}
    except BlockingIOError:
        return {"held": True, "text": os.read(descriptor, 4096).decode("utf-8", "replace")}
    finally:
        os.close(descriptor)


def services(units):
    """The properties of each unit, from one call for all of them."""
    if not units:
        return {}
    output = run(["systemctl", "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--", *units])
    blocks = [block for block in output.split("\n\n") if block.strip()]
    if len(blocks) != len(units):
        sys.exit(f"systemctl answered for {len(blocks)} of {len(units)} units")
    return {
        unit: dict(line.split("=", 1) for line in block.strip().split("\n"))
        for unit, block in zip(units, blocks, strict=True)
    }


def run(command):
    """The output of a program, as text."""
    reading, writing = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1)]
    child = os.posix_spawnp(command[0], command, {**os.environ, "LC_ALL": "C.UTF-8"}, file_actions=actions)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        output = stream.read()
    os.waitpid(child, 0)
    return output.decode("utf-8", "replace")


def sha256():
    """An empty SHA-256. Python's own, because hashlib loads OpenSSL, which takes half as long as Python's start."""
    try:
        from _sha2 import sha256 as new  # type: ignore[import-not-found]
    except ImportError:
        from _sha256 import sha256 as new  # type: ignore[import-not-found]  # before Python 3.12
    return new()


def file_facts(path):
    """Digest, mode, owner and group of a file, {} where it is absent; the digest ``link`` for a link in its place."""
    import stat

    try:
        # Whoever owns the directory could have put a link there, which root must not read through, or a pipe,
        # which would not open before it has a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise OSError(0, "not a regular file")
            digest = sha256()
            while block := file.read(1 << 18):
                digest.update(block)
    except FileNotFoundError:
        return {}
    except OSError as error:
        if os.path.islink(path):
            return {"digest": "link", "mode": "", "owner": "", "group": ""}
        return {"digest": f"unreadable: {error.strerror}", "mode": "", "owner": "", "group": ""}
    return {
        "digest": "sha256:" + digest.hexdigest(),
        "mode": "%04o" % (status.st_mode & 0o7777),
        "owner": name_of("pwd", "getpwuid", status.st_uid),
        "group": name_of("grp", "getgrgid", status.st_gid),
    }


def name_of(module, function, number):
    try:
        return getattr(__import__(module), function)(number)[0]
    except KeyError:
        return str(number)
