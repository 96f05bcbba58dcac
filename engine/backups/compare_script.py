"""Runs on the tenant, read-only: how its files differ from an archive's.

Reads ``PARAMETERS``: ``trees`` [{path, exclude}], ``expected`` {path: member} and ``limit`` (findings told of each
sort). Leaves ``RESULT``: {"added" | "changed" | "removed": [findings], "counts": {the same: how many}}. A finding has
``path`` and what is there ``now`` and was ``then``: ``sha256:…`` of a file, else its kind or where it leads.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
from typing import Any

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]
trees: Any = globals()["trees"]
COMPARED = ("kind", "mode", "owner", "group", "sha256", "target")


def compare(parameters):
    expected, live = parameters["expected"], {}
    for tree in parameters["trees"]:
        for entry in trees.describe(tree["path"], tree["exclude"]):
            live[f"{tree['path']}/{entry['path']}" if entry["path"] else tree["path"]] = entry
    found = {
        "added": [finding(path, None, expected[path]) for path in sorted(expected) if path not in live],
        "changed": [
            finding(path, live[path], expected[path])
            for path in sorted(expected)
            if path in live and is_other(live[path], expected[path])
        ],
        "removed": [finding(path, live[path], None) for path in sorted(live) if path not in expected],
    }
    counts = {name: len(findings) for name, findings in found.items()}
    return {**{name: findings[: parameters["limit"]] for name, findings in found.items()}, "counts": counts}


def is_other(entry, member):
    # A link has no mode of its own.
    aspects = [name for name in COMPARED if name != "mode" or member["kind"] != "link"]
    return any(entry.get(name) != member[name] for name in aspects)


def finding(path, entry, member):
    return {"path": path, "now": said(entry), "then": said(member)}


def said(thing):
    if thing is None:
        return None
    if thing["kind"] == "file":
        return f"sha256:{thing['sha256']}"
    return f"link to {thing['target']}" if thing["kind"] == "link" else thing["kind"]


RESULT = compare(PARAMETERS)
