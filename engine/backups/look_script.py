"""Runs on the tenant, read-only: what a restore would meet there.

Reads ``PARAMETERS``: ``home`` (the engine's directory) and ``paths`` (of contents, the last part may hold ``*`` and
``?``). Leaves ``RESULT``: {"live": {path: kind}, "elsewhere": [paths on another file system], "free"}.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
from typing import Any

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
trees: Any = globals()["trees"]
moves: Any = globals()["moves"]


def look(parameters):
    home = parameters["home"]
    # The engine's directory may not be there yet; nothing is made for a look.
    place = home if os.path.isdir(home) else os.path.dirname(home)
    live, elsewhere = {}, []
    for pattern in parameters["paths"]:
        for path in trees.expand(pattern):
            kind = kind_of(path)
            if kind:
                live[path] = kind
            if not moves.same_file_system(path, place):
                elsewhere.append(path)
    room = os.statvfs(place)
    return {"live": live, "elsewhere": elsewhere, "free": room.f_bavail * room.f_frsize}


def kind_of(path):
    try:
        parent, name = trees.open_parent(path)
    except trees.ABSENT:
        return ""
    try:
        return trees.entry_of(os.lstat(name, dir_fd=parent), "")["kind"]
    except FileNotFoundError:
        return ""
    finally:
        os.close(parent)


RESULT = look(PARAMETERS)
