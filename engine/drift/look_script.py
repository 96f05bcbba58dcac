"""The part of the probe that looks at what drift compares. It changes nothing.

Sent behind ``probe_script.py``, whose functions it uses. What could not be asked is None or has an ``error``;
that is never taken for absent or clean.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os

LARGEST_TEXT_BYTES = 4 << 20
UNIT_PROPERTIES = ("Id", "LoadState", "ActiveState", "SubState", "UnitFileState", "MainPID")
DROP_INS = ("/etc/systemd/system", "/etc/systemd/system.control", "/run/systemd/system", "/run/systemd/system.control")


def look(wanted):
    return {
        "places": {path: place(path, fragments) for path, fragments in wanted["places"].items()},
        "values": {path: values(path, names) for path, names in wanted["values"].items()},
        "groups": {name: members(name) for name in wanted["groups"]},
        "packages": packages(wanted["packages"]),
        "downgraded": downgraded(),
        "units": units(wanted["units"]),
        "drop_ins": sorted({path for unit in wanted["units"] for path in drop_ins(unit)}),
        "failed": failed(),
        "process": process(wanted["process"]),
    }


def place(path, fragments):
    """What is at a path: its kind, mode, owner and group, a file's digest and missing fragments, a link's target."""
    import stat

    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return {"kind": "link", "target": os.readlink(path)}
        facts = {
            "mode": "%04o" % (status.st_mode & 0o7777),
            "owner": name_of("pwd", "getpwuid", status.st_uid),  # type: ignore[name-defined] # noqa: F821
            "group": name_of("grp", "getgrgid", status.st_gid),  # type: ignore[name-defined] # noqa: F821
        }
        if stat.S_ISDIR(status.st_mode):
            return {"kind": "directory", **facts}
        if not stat.S_ISREG(status.st_mode):
            return {"kind": "something else"}
        return {"kind": "file", **facts, **content(path, fragments)}
    except (FileNotFoundError, NotADirectoryError):
        return {"kind": "absent"}
    except OSError as error:
        return {"kind": "unknown", "error": error.strerror or str(error)}


def content(path, fragments):
    digest = sha256()  # type: ignore[name-defined] # noqa: F821
    text = b""
    with open_file(path) as file:
        while block := file.read(1 << 18):
            digest.update(block)
            if fragments and len(text) <= LARGEST_TEXT_BYTES:
                text += block
    if fragments and len(text) > LARGEST_TEXT_BYTES:
        raise OSError(0, "too large to be searched")
    missing = [fragment for fragment in fragments if fragment.encode() not in text]
    return {"digest": "sha256:" + digest.hexdigest(), "missing": missing}


def open_file(path):
    # Whoever owns the directory could have put a link or a pipe there meanwhile.
    return open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def values(path, names):
    """The values of these dotted names, as JSON; no entry for one that is not there."""
    import json
    import sys

    # -S leaves Debian's packages out; PyYAML is there because cloud-init needs it.
    sys.path.append("/usr/lib/python3/dist-packages")
    try:
        import yaml

        with open_file(path) as file:
            text = file.read(LARGEST_TEXT_BYTES + 1)
        if len(text) > LARGEST_TEXT_BYTES:
            raise OSError(0, "too large to be read")
    except (FileNotFoundError, NotADirectoryError):
        return {"found": {}}
    except (ImportError, OSError) as error:
        return {"error": getattr(error, "strerror", None) or str(error)}
    try:
        tree = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return {"found": {name: json.dumps(value) for name in names for value in of(tree, name.split("."))}}
    except Exception:
        # It could be read, and is no such file: none of the values is there.
        return {"found": {}}


def of(tree, names):
    """The value at `names` as a list of one, or of none."""
    for name in names:
        if not isinstance(tree, dict) or name not in tree:
            return []
        tree = tree[name]
    return [tree]


def members(name):
    import grp

    try:
        return grp.getgrnam(name).gr_mem
    except KeyError:
        return None


def packages(names):
    """Version, state and selection of these packages, and of every one that is held; None if dpkg cannot tell."""
    form = "${Package} ${db:Status-Want} ${db:Status-Status} ${Version}\n"
    output = said(["dpkg-query", "--show", "--showformat=" + form])
    if output is None:
        return None
    rows = [line.split(" ", 3) for line in output.splitlines()]
    return {
        name: {"want": want, "state": state, "version": version}
        for name, want, state, version in rows
        if name in names or want == "hold"
    }


def downgraded():
    """The packages whose newest change, by dpkg's own log, went to a lower version: from and to, and when."""
    actions = ("install", "upgrade", "remove", "purge")
    changes = {}
    for path in ("/var/log/dpkg.log.1", "/var/log/dpkg.log"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                lines = [line.split() for line in file]
        except FileNotFoundError:
            continue
        except OSError:
            return None
        changes.update({line[3].split(":")[0]: line for line in lines if len(line) == 6 and line[2] in actions})
    return {
        name: {"from": line[4], "to": line[5], "at": line[0] + " " + line[1]}
        for name, line in changes.items()
        if line[2] == "upgrade" and said(["dpkg", "--compare-versions", line[5], "lt", line[4]]) is not None
    }


def units(names):
    """The properties of each unit; None if systemd does not answer for all of them."""
    if not names:
        return {}
    output = said(["systemctl", "show", "--no-pager", "--property=" + ",".join(UNIT_PROPERTIES), "--", *names])
    blocks = [block for block in (output or "").split("\n\n") if block.strip()]
    if len(blocks) != len(names):
        return None
    return {
        name: dict(line.split("=", 1) for line in block.strip().split("\n"))
        for name, block in zip(names, blocks, strict=True)
    }


def drop_ins(unit):
    """The files that change a unit besides its own: those for its name, its name's beginnings and its type."""
    name, _, kind = unit.rpartition(".")
    parts = name.split("-")
    beginnings = ["-".join(parts[:count]) + "-" for count in range(1, len(parts))]
    found = []
    for root in DROP_INS:
        for owner in (unit, *(f"{beginning}.{kind}" for beginning in beginnings), kind):
            directory = f"{root}/{owner}.d"
            try:
                found += [f"{directory}/{file}" for file in os.listdir(directory) if file.endswith(".conf")]
            except (FileNotFoundError, NotADirectoryError):
                continue
    return found


def failed():
    output = said(["systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager"])
    return None if output is None else [line.split()[0] for line in output.splitlines() if line.strip()]


def process(wanted):
    """When a unit's main process began, and when each of these paths was put there, in Unix seconds."""
    import time

    if wanted is None:
        return None
    output = said(["systemctl", "show", "--property=MainPID", "--value", "--", wanted["unit"]])
    try:
        with open(f"/proc/{int(output or 0)}/stat", encoding="utf-8", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError):
        return {"started": None, "changed": {}}
    running = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    changed = {}
    for path in wanted["paths"]:
        try:
            changed[path] = os.lstat(path).st_mtime
        except OSError:
            continue
    return {"started": time.time() - running, "changed": changed}


def said(command):
    """The output of a program; None unless it ended well."""
    reading, writing = os.pipe()
    silence = os.open(os.devnull, os.O_WRONLY)
    actions = [(os.POSIX_SPAWN_DUP2, writing, 1), (os.POSIX_SPAWN_DUP2, silence, 2)]
    try:
        child = os.posix_spawnp(command[0], command, {**os.environ, "LC_ALL": "C.UTF-8"}, file_actions=actions)
    except OSError:
        os.close(reading)
        return None
    finally:
        os.close(writing)
        os.close(silence)
    with os.fdopen(reading, "rb") as stream:
        output = stream.read()
    return output.decode("utf-8", "replace") if os.waitpid(child, 0)[1] == 0 else None
