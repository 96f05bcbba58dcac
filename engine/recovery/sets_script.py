"""Runs on the tenant, as the module ``sets`` of another script: recovery sets, and what is in them.

A set is a directory below ``recovery`` named by the run that took it. It is complete once it has its name, and holds
``set.json`` (what the probe reports), ``trees.json`` (what was saved of which path), the copies in ``configuration``
and ``own``, and ``state`` once the gateway was stopped. ``recovery/open.json`` names the set of the change that is
going on: it stays open from the first mutation until the change is committed or undone, whichever run does that, so
that a run which goes on from an interrupted one is put back to what was there before both.

Copies go with their set. What was moved into one is the only one of its kind: it goes to ``aside`` when the set goes.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import hashlib
import os
import pathlib
import sqlite3
import stat
import time
from typing import Any

trees: Any = globals()["trees"]
moves: Any = globals()["moves"]
units: Any = globals()["units"]

HOME = "/var/lib/tenantry"
OWN = ("version", "applied.json", "owed.json")
QUERY_SECONDS = 20
PARTIAL = ".partial"


def recovery():
    return HOME + "/recovery"


def directory_of(run):
    return f"{recovery()}/{run}"


def complete():
    """The runs whose sets are whole, oldest first."""
    try:
        names = os.listdir(recovery())
    except FileNotFoundError:
        return []
    return sorted(name for name in names if os.path.exists(f"{directory_of(name)}/set.json") and PARTIAL not in name)


# Taking


def take(parameters):
    """Make the set of a run, or find the one that is open; {"set", "irreversible"}.

    `parameters`: run, from, to, gateway {unit, database} or None, scopes (configuration: path, exclude), states (path,
    exclude), moved (trees whose live files others will move into the set: path, kind, exclude), links, units, quiet
    (paths that only the gateway reads), reserve_bytes, kept. Without enough room: {"problem", "needed", "free"}, and
    nothing was made.
    """
    os.makedirs(recovery(), mode=0o700, exist_ok=True)
    clear_partial()
    opened = moves.read_json(recovery() + "/open.json")
    found = opened and moves.read_json(directory_of(opened["run"]) + "/set.json")
    # Files that are moved into a set are in no other; what a restore would replace is in its own set alone.
    is_apart = parameters["moved"] or (found and found.get("moved"))
    if found and found["from"] == parameters["from"] and not found.get("undone") and not is_apart:
        found["to"] = parameters["to"]
        moves.write_json(directory_of(opened["run"]) + "/set.json", found)
        return {"set": opened["run"], "irreversible": found["irreversible"]}
    refusal = lack(parameters)
    if refusal:
        return refusal
    make(parameters)
    moves.write_json(recovery() + "/open.json", {"run": parameters["run"]})
    prune(parameters["kept"])
    return {"set": parameters["run"], "irreversible": []}


def clear_partial():
    for name in os.listdir(recovery()):
        if name.endswith(PARTIAL):
            discard(name.removesuffix(PARTIAL))


def lack(parameters):
    """Why the set cannot be taken; nothing where it can."""
    for scope in parameters["states"]:
        if not moves.same_file_system(scope["path"], HOME):
            return {"problem": f"{scope['path']} lies on another file system than {HOME}", "needed": 0, "free": 0}
    scopes = parameters["scopes"] + parameters["states"]
    needed = sum(trees.measure(path, scope["exclude"]) for scope in scopes for path in trees.expand(scope["path"]))
    room = os.statvfs(HOME)
    free = room.f_bavail * room.f_frsize
    if free < needed + parameters["reserve_bytes"]:
        return {"problem": "no room", "needed": needed + parameters["reserve_bytes"], "free": free}
    return None


def make(parameters):
    final = directory_of(parameters["run"])
    partial = final + PARTIAL
    os.mkdir(partial, 0o700)
    os.mkdir(partial + "/configuration", 0o700)
    saved = save(partial, "configuration", parameters["scopes"])
    moved = [{**tree, "how": "moved", "saved": f"moved/{count}"} for count, tree in enumerate(parameters["moved"])]
    links = {link: (trees.look(link) or {}).get("target") for link in parameters["links"]}
    moves.write_json(
        partial + "/trees.json",
        {"scopes": parameters["scopes"], "states": parameters["states"], "trees": saved + moved},
    )
    keep_own(partial)
    found = {units.unit_of(place(tree, entry)) for tree in saved for entry in tree["entries"]} - {""}
    moves.write_json(
        partial + "/set.json",
        {
            "run": parameters["run"],
            "from": parameters["from"],
            "to": parameters["to"],
            "created": time.time(),
            "irreversible": [],
            "gateway": parameters["gateway"],
            "links": links,
            "units": units.states_of(sorted({*parameters["units"], *found})),
            "quiet": parameters["quiet"],
            "moved": bool(moved),
            "state": None,
            "undone": None,
        },
    )
    os.sync()
    os.rename(partial, final)
    moves.sync_directory(recovery())


def save(directory, part, scopes):
    """Copy what the scopes name below `part` of a set; the trees as they are listed."""
    saved: list = []  # type: ignore[type-arg]
    for scope in scopes:
        for path in trees.expand(scope["path"]):
            target = f"{part}/{len(saved)}"
            entries, skipped = trees.copy_tree(path, f"{directory}/{target}", scope["exclude"], flush=False)
            tree = {"path": path, "kind": part, "how": "copied", "exclude": scope["exclude"], "saved": target}
            saved.append({**tree, "entries": entries, "skipped": skipped})
    return saved


def record_irreversible(run, step):
    """A step is about to run that nothing can take back."""
    path = directory_of(run) + "/set.json"
    description = moves.read_json(path)
    if step not in description["irreversible"]:
        description["irreversible"].append(step)
        moves.write_json(path, description)


def place(tree, entry):
    """Where an entry of a tree lies when it is live."""
    return f"{tree['path']}/{entry['path']}" if entry["path"] else tree["path"]


def keep_own(directory):
    os.mkdir(directory + "/own", 0o700)
    for name in OWN:
        trees.copy_tree(f"{HOME}/{name}", f"{directory}/own/{name}", flush=False)


def prune(kept):
    """Remove the oldest sets beyond `kept`; never the open one."""
    opened = (moves.read_json(recovery() + "/open.json") or {}).get("run")
    for run in complete()[:-kept]:
        if run != opened:
            remove(run)


def drop(run):
    """Remove a set whose change was called off before anything was changed."""
    close(run)
    remove(run)


def remove(run):
    # A set without its name is no set any more, wherever this ends.
    os.rename(directory_of(run), directory_of(run) + PARTIAL)
    discard(run)


def discard(run):
    """Remove a set that has lost its name, or never had it; files that were moved into it are kept aside."""
    partial = directory_of(run) + PARTIAL
    moved = partial + "/moved"
    if os.path.isdir(moved) and any(holds_something(f"{moved}/{name}") for name in os.listdir(moved)):
        kept = f"{HOME}/aside/{run}"
        os.makedirs(kept, mode=0o700, exist_ok=True)
        moves.move(moved, f"{kept}/moved")
    moves.remove_tree(partial)


def holds_something(directory):
    return os.path.isdir(directory) and bool(os.listdir(directory))


def close(run):
    """The change that the set `run` was taken for has come to its end."""
    opened = moves.read_json(recovery() + "/open.json")
    if opened and opened["run"] == run:
        os.unlink(recovery() + "/open.json")
        moves.sync_directory(recovery())


# State


def state_lack(run):
    """Why the state cannot be copied, found before the gateway is stopped; nothing where it can."""
    directory = directory_of(run)
    if moves.read_json(directory + "/set.json")["state"]:
        return ""
    states = moves.read_json(directory + "/trees.json")["states"]
    needed = sum(trees.measure(path, scope["exclude"]) for scope in states for path in trees.expand(scope["path"]))
    room = os.statvfs(HOME)
    free = room.f_bavail * room.f_frsize
    # The reserve was asked for before the run began; here it is what it was kept for.
    if free < needed:
        return f"no room for a copy of the state: {needed} bytes needed, {free} bytes free"
    return ""


def take_state(run):
    """Copy the state into the set while the gateway is stopped; an older copy that is there already stays."""
    directory = directory_of(run)
    description, listed = moves.read_json(directory + "/set.json"), moves.read_json(directory + "/trees.json")
    if description["state"] or description.get("moved") or not description["gateway"]:
        return
    for leftover in ("state", "state" + PARTIAL):
        moves.remove_tree(f"{directory}/{leftover}")
    os.mkdir(f"{directory}/state{PARTIAL}", 0o700)
    form = form_of(description["gateway"]["database"])
    saved = save(directory, "state" + PARTIAL, listed["states"])
    for tree in saved:
        tree.update(kind="state", saved=tree["saved"].replace(PARTIAL, ""))
    os.sync()
    os.rename(f"{directory}/state{PARTIAL}", f"{directory}/state")
    listed["trees"] = [tree for tree in listed["trees"] if tree["kind"] != "state"] + saved
    moves.write_json(directory + "/trees.json", listed)
    description["state"] = {**form, "taken": time.time()}
    moves.write_json(directory + "/set.json", description)


def form_of(database):
    """The form of the runtime's database and the time of its newest message: {"form", "objects", "newest"}.

    The form is a digest of its schema, ``absent``, or None where it cannot be read. ``objects`` has a digest of each
    thing that the runtime made there, and ``user_version``. Nothing is created.
    """
    unknown = {"form": None, "objects": None, "newest": None}
    try:
        if not stat.S_ISREG(os.lstat(database).st_mode):
            return unknown
    except FileNotFoundError:
        return {**unknown, "form": "absent"}
    try:
        connection = open_database(database)
        try:
            schema = connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name").fetchall()
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            # SQLite's own tables come and go with statistics and indices.
            own = {f"{kind} {name}": sql for kind, name, sql in schema if not name.startswith("sqlite_")}
            objects = {name: digest_of(sql) for name, sql in own.items()} | {"user_version": version}
            return {"form": digest_of((schema, version)), "objects": objects, "newest": newest_in(connection)}
        finally:
            connection.close()
    except (OSError, sqlite3.Error):
        return unknown


def digest_of(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()


def has_changed_form(saved, database):
    """Whether something that the database had when its copy `saved` was taken is otherwise now, or missing.

    What was not known then says nothing; a database that cannot be read any more has changed.
    """
    now = form_of(database)
    if saved["form"] in (None, now["form"]):
        return False
    # A set of an earlier engine has the one digest alone.
    known, found = saved.get("objects"), now["objects"]
    return not known or not found or any(found.get(name) != digest for name, digest in known.items())


def open_database(path):
    """The database for reading, as the probe opens it."""
    # Without a log beside it nobody writes; an ordinary opening would then create the log's files.
    mode = "?mode=ro" if os.path.exists(path + "-wal") else "?immutable=1"
    connection = sqlite3.connect(pathlib.Path(path).as_uri() + mode, uri=True, timeout=5)
    # What is called a table may be a view without an end.
    end = time.monotonic() + QUERY_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > end, 10_000)
    return connection


def newest_in(connection):
    try:
        return connection.execute("SELECT MAX(timestamp) FROM messages").fetchone()[0]
    except sqlite3.Error:
        return None


def newer_messages(database, since):
    """How many messages came after `since`; None where that cannot be told."""
    try:
        connection = open_database(database)
        try:
            query = "SELECT COUNT(*) FROM messages WHERE ? IS NULL OR timestamp > ?"
            return connection.execute(query, (since, since)).fetchone()[0]
        finally:
            connection.close()
    except (OSError, sqlite3.Error):
        return None
