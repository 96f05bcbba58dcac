"""Runs on the tenant: changes one of the engine's own files there, atomically and durably.

Reads ``PARAMETERS`` (set by the sender): one or more of the actions below with what
each needs; they are applied in the order of the list at the end. Leaves ``RESULT``.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import json
import os

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]

HOME = "/var/lib/tenantry"


def replace(name, text):
    path = os.path.join(HOME, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    temporary = path + ".partial"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def read(name):
    try:
        with open(os.path.join(HOME, name), encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


def write(name, value):
    replace(name, json.dumps(value, indent=1, sort_keys=True) + "\n")


def owe(work):
    owed = read("owed.json")
    for kind in ("restart", "reloads"):
        present = owed.get(kind, [])
        owed[kind] = present + [item for item in work.get(kind, []) if item not in present]
    owed["switches"] = {**owed.get("switches", {}), **work.get("switches", {})}
    write("owed.json", owed)


def note(value):
    owed = read("owed.json")
    owed["note"] = value
    write("owed.json", owed)


def commit(work):
    # The marker comes last: what stands beside it counts only once it does.
    write("applied.json", {**read("applied.json"), **work["applied"]})
    replace("version", work["version"] + "\n")
    settle(work["owed"])


def settle(work):
    write("owed.json", {**read("owed.json"), **work})


def close(work):
    """The change is through: its recovery set is no longer the open one, and nothing holds the tenant any more."""
    for name in ("recovery/open.json", "held.json"):
        path = os.path.join(HOME, name)
        if os.path.exists(path):
            os.unlink(path)
            directory = os.open(os.path.dirname(path), os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)


def receipt(work):
    write("receipts/" + work["name"] + ".json", work["content"])


os.umask(0o077)
os.makedirs(HOME, mode=0o700, exist_ok=True)
for action in (owe, note, commit, settle, close, receipt):
    if action.__name__ in PARAMETERS:
        action(PARAMETERS[action.__name__])
RESULT: dict = {}  # type: ignore[type-arg]
