"""The probe: prints one JSON object about this host between two marks. It changes nothing.

Sent over standard input to ``python3 -ISs -`` with a last line that calls ``main``. Modules that cost
time to load are imported where they are needed. What it reports is raw; the reader judges it.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import sys

HOME = "/var/lib/tenantry"
TIMEOUT = 2.0
PROPERTIES = ("LoadState", "ActiveState", "SubState", "MainPID", "NRestarts", "Result")


def main(nonce, parameters):
    """`parameters`: units, files, routes and gateway (a mapping or None)."""
    answer = {
        "marker": read(HOME + "/version"),
        "applied": read(HOME + "/applied.json"),
        "receipts": receipts(),
        "owed": read(HOME + "/owed.json"),
        "host_lock": host_lock(),
        "boot_id": read("/proc/sys/kernel/random/boot_id"),
        "services": services(parameters["units"]),
        "routes": {route["name"]: get(route)[0] for route in parameters["routes"]},
        "files": {name: file_facts(path) for name, path in parameters["files"].items()},
        "gateway": gateway(parameters["gateway"]) if parameters["gateway"] else None,
        "clock": clock(),
    }
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
    return {True: "true", False: "false", None: "null"}[value] if value in (True, False, None) else repr(value)


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


def file_facts(path):
    """Digest, mode, owner and group of a file, {} where it is absent."""
    import hashlib

    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            digest = hashlib.sha256()
            while block := file.read(1 << 18):
                digest.update(block)
    except FileNotFoundError:
        return {}
    except OSError as error:
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


def get(route):
    """Status and body of one HTTP GET; (None, None) without a connection, (0, None) if it is not HTTP."""
    import socket

    try:
        connection = socket.create_connection((route["address"], route["port"]), TIMEOUT)
    except OSError:
        return None, None
    try:
        if route["tls"]:
            import ssl

            # The question is whether the proxy answers; who it is to the world cannot be seen from inside.
            connection = ssl._create_unverified_context().wrap_socket(connection, server_hostname=route["host"])
        connection.settimeout(TIMEOUT)
        request = f"GET {route['path']} HTTP/1.0\r\nHost: {route['host']}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = b""
        while len(answer) < 1 << 20 and (block := connection.recv(65536)):
            answer += block
    except OSError:
        answer = b""
    finally:
        connection.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    fields = head.split(None, 2)
    if len(fields) < 2 or not fields[0].startswith(b"HTTP/") or not fields[1].isdigit():
        return 0, None
    return int(fields[1]), body


def gateway(settings):
    import json

    status, body = get(settings["health"])
    try:
        version = json.loads(body or b"null")["version"]
    except (ValueError, TypeError, KeyError):
        version = None
    return {
        "port_open": status is not None,
        "running_version": version if isinstance(version, str) else None,
        "runtime": read(settings["runtime_link"] + "/.tenantry-complete"),
        "report": report(settings["state_file"]),
        "history": history(settings["database"]),
        "config": config(settings["config_file"]),
    }


def report(path):
    """The process and the channels that the runtime reports; None where there is no readable report."""
    import json

    try:
        with open(path, "rb") as file:
            content = json.load(file)
        platforms = content.get("platforms") or {}
        channels = {
            name: {"state": platform.get("state"), "updated_at": platform.get("updated_at")}
            for name, platform in platforms.items()
        }
        return {"pid": content.get("pid"), "channels": channels}
    except (OSError, ValueError, AttributeError):
        return None


def history(path):
    """Time of the newest message, read while the database is live; nothing is created."""
    if not os.path.exists(path):
        return {"state": "missing"}
    import sqlite3

    live = os.path.exists(path + "-wal")
    quoted = "".join(
        chr(byte) if (byte < 128 and chr(byte).isalnum()) or byte in b"/._-" else f"%{byte:02X}"
        for byte in os.fsencode(path)
    )
    # Without a log beside it nobody writes; an ordinary opening would then create the log's files.
    uri = "file:" + quoted + ("?mode=ro" if live else "?immutable=1")
    try:
        database = sqlite3.connect(uri, uri=True, timeout=TIMEOUT)
        try:
            newest = database.execute("SELECT MAX(timestamp) FROM messages").fetchone()[0]
        finally:
            database.close()
    except sqlite3.Error as error:
        return {"state": "unreadable", "problem": str(error)}
    if not live and os.path.exists(path + "-wal"):
        return {"state": "unreadable", "problem": "a writer began while it was read"}
    if newest is None:
        return {"state": "empty"}
    if not isinstance(newest, (int, float)):
        return {"state": "unreadable", "problem": "the newest timestamp is no number"}
    return {"state": "readable", "newest": newest}


def config(path):
    """The configured models and whether the chat model is bound to named hosts; never a key or a URL."""
    if not os.path.exists(path):
        return {"models": {}, "pinned": None}
    # -S leaves Debian's packages out; PyYAML is there because cloud-init needs it.
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import yaml

        with open(path, "rb") as file:
            content = yaml.load(file, getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
        model = content.get("model") or {}
        only = (content.get("provider_routing") or {}).get("only")
        models = {"chat": model["default"]} if isinstance(model.get("default"), str) else {}
        return {"models": models, "pinned": isinstance(only, list) and len(only) > 0}
    except Exception:
        return {"models": {}, "pinned": None}
