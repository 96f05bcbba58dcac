"""The second part of the probe: what the gateway and its routes answer. It changes nothing.

Never reports a key, a URL or the words of a message.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import sys

TIMEOUT = 2.0
QUERY_SECONDS = 20.0
LARGEST_BYTES = 1 << 20


def routes(wanted):
    """The HTTP status of each route; None without an answer."""
    return {route["name"]: get(route)[0] for route in wanted}


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
    """The gateway's port, versions, channels, newest message and models; None where the fleet has none."""
    if settings is None:
        return None
    import json

    status, body = get(settings["health"])
    try:
        version = json.loads(body or b"null")["version"]
    except (ValueError, TypeError, KeyError):
        version = None
    return {
        "port_open": status is not None,
        "running_version": version if isinstance(version, str) else None,
        "runtime_version": stamp(settings["runtime_link"]),
        "report": report(settings["state_file"]),
        "history": history(settings["database"]),
        "config": config(settings["config_file"]),
    }


def content_of(path):
    """The bytes of a regular file of at most 1 MiB; raises OSError for whatever else the account put there."""
    import stat

    # A link could lead root anywhere; a pipe would not open before it has a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "not a regular file")
        content = file.read(LARGEST_BYTES + 1)
    if len(content) > LARGEST_BYTES:
        raise OSError(0, "too large")
    return content


def stamp(link):
    """The version that the installed runtime is stamped with; None while it is not complete."""
    try:
        return content_of(link + "/.tenantry-complete").decode().strip()[:256] or None
    except (OSError, ValueError):
        return None


def report(path):
    """The process and the channels that the runtime reports; None where there is no readable report."""
    import json

    try:
        content = json.loads(content_of(path))
        platforms = content.get("platforms") or {}
        channels = {
            name: {"state": platform.get("state"), "updated_at": platform.get("updated_at")}
            for name, platform in platforms.items()
        }
        return {"pid": content.get("pid"), "channels": channels}
    except (OSError, ValueError, AttributeError, RecursionError):
        return None


def history(path):
    """Time of the newest message, read while the database is live; nothing is created."""
    import stat

    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return {"state": "missing"}
    if not stat.S_ISREG(mode):
        return {"state": "unreadable", "problem": "not a regular file"}
    import sqlite3
    import time

    live = os.path.exists(path + "-wal")
    quoted = "".join(
        chr(byte) if (byte < 128 and chr(byte).isalnum()) or byte in b"/._-" else f"%{byte:02X}"
        for byte in os.fsencode(path)
    )
    # Without a log beside it nobody writes; an ordinary opening would then create the log's files. A reader may also
    # leave its mark in the log's index, unless it is told not to.
    index = "&readonly_shm=1" if os.path.exists(path + "-shm") else ""
    uri = "file:" + quoted + ("?mode=ro" + index if live else "?immutable=1")
    try:
        database = sqlite3.connect(uri, uri=True, timeout=TIMEOUT)
        try:
            # What is called a table may be a view without an end.
            end = time.monotonic() + QUERY_SECONDS
            database.set_progress_handler(lambda: time.monotonic() > end, 10_000)
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

        content = yaml.load(content_of(path), getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
        model = content.get("model") or {}
        only = (content.get("provider_routing") or {}).get("only")
        models = {"chat": model["default"]} if isinstance(model.get("default"), str) else {}
        return {"models": models, "pinned": isinstance(only, list) and len(only) > 0}
    except Exception:
        return {"models": {}, "pinned": None}
