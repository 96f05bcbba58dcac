"""Runs on the tenant, as the module ``undo`` of another script: puts the tenant back to a recovery set.

It may die at any point and be called again, by whomever: ``undo.json`` in the set says what was decided and where
things go aside, and each part looks at what is there. Nothing that is live is removed; it goes to ``aside``.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import sqlite3
import time
from typing import Any

trees: Any = globals()["trees"]
moves: Any = globals()["moves"]
units: Any = globals()["units"]
sets: Any = globals()["sets"]
conversations: Any = globals()["conversations"]

COMPARED = ("kind", "mode", "owner", "group", "sha256", "target")
# The dead-man's own units are not part of any tenant.
NEVER = "/etc/systemd/system/tenantry-"


def undo(parameters):
    """Put the tenant back to the set ``set`` for ``by``, and hold it with ``held``; what was done.

    {"outcome": "undone", "aside", "state", "given_back" [{"path", "aside"}], "newer_in" (where the state since then
    lies, None where it stayed), "newer_messages", "changed", "old_pid", "started_at", "problems"} or {"outcome":
    "damaged", "problem"}, where nothing was changed.
    """
    directory = sets.directory_of(parameters["set"])
    description = moves.read_json(directory + "/set.json")
    if description is None:
        return {"outcome": "damaged", "problem": f"there is no recovery set {parameters['set']}"}
    listed = moves.read_json(directory + "/trees.json")
    damage = damage_of(directory, listed, "configuration")
    if damage:
        return {"outcome": "damaged", "problem": damage}
    progress = begin(directory, parameters)
    gateway = description["gateway"]
    stopped: list = []  # type: ignore[type-arg]
    try:
        return put_back(directory, description, listed, progress, parameters["held"], stopped)
    except BaseException:
        # Half of it is better than no gateway; what is left is done by the next attempt.
        for name in stopped:
            units.systemctl("start", name)
        if gateway:
            units.start(gateway["unit"])
        raise


def put_back(directory, description, listed, progress, held, stopped):
    gateway, problems, old_pid = description["gateway"], [], 0
    if gateway:
        old_pid, problem = units.stop(gateway["unit"])
        problems += [problem]
    damage = decide(directory, description, listed, progress, old_pid)
    if damage:
        units.start(gateway["unit"])
        return {"outcome": "damaged", "problem": damage}
    if description.get("moved"):
        problems += stop_others(description, stopped)
    # The marker first: that less is there than it says would be a lie, more than it says is put right by a converge.
    put_own_back(directory, ("version",))
    put_trees_back(directory, listed, progress)
    changed = put_configuration_back(directory, listed, description, progress["aside"] + "/files")
    put_links_back(description, progress["aside"] + "/files")
    put_own_back(directory, ("applied.json",))
    put_owed_back(directory, stay_ended(description, listed, progress))
    if held:
        moves.write_json(sets.HOME + "/held.json", held)
    if gateway:
        problems += [put_personality_back()]
    problems += settle_units(description, changed, progress.get("resumed") or description.get("moved"))
    started_at = None
    if gateway:
        started_at, more = units.start(gateway["unit"])
        problems += more
    return finish(directory, progress, changed, started_at, problems)


def begin(directory, parameters):
    """What an earlier attempt decided, or a new beginning."""
    progress = moves.read_json(directory + "/undo.json")
    if progress is None or progress["stage"] == "done":
        aside = f"{sets.HOME}/aside/{parameters['by']}"
        progress = {"stage": "begun", "by": parameters["by"], "aside": aside, "state": None, "old_pid": 0}
        moves.write_json(directory + "/undo.json", progress)
    else:
        # What the earlier attempt changed is not known any more.
        progress["resumed"] = True
    return progress


def stop_others(description, stopped):
    """Stop what may have files open that move, as the exchange did; names it in `stopped`, gives what went wrong.

    Units that ran when the set was taken are started by :func:`settle_units`.
    """
    found = units.states_of(others_of(description))
    problems = []
    for name in units.starters_first(name for name in found if found[name]["active"]):
        stopped.append(name)
        problems.append(units.systemctl("stop", name))
    return problems


def others_of(description):
    """The units of a set besides the gateway's."""
    gateway = (description["gateway"] or {}).get("unit")
    return [name for name in description["units"] if name != gateway]


def decide(directory, description, listed, progress, old_pid):
    """Decide, once and with the gateway stopped, what of the state goes back; gives what forbids it."""
    if progress["state"] is not None:
        return ""
    saved, database = description["state"], (description["gateway"] or {}).get("database")
    goes_back = bool(saved) and sets.has_changed_form(saved, database)
    progress["given_back"] = given_back(directory, listed, progress)
    if goes_back:
        damage = damage_of(directory, listed, "state")
        if damage:
            return damage
        tell_newer(progress, database, saved["newest"], progress["aside"] + "/state")
    for item in progress["given_back"]:
        if database and f"{database}/".startswith(item["path"] + "/"):
            # What came before the set was taken is in the set, or in the archive.
            tell_newer(progress, database, description["created"], item["aside"])
    progress["state"] = "put back" if goes_back else "kept" if database else "none"
    progress["old_pid"] = old_pid
    moves.write_json(directory + "/undo.json", progress)
    return ""


def tell_newer(progress, database, since, place):
    progress.update(newer_messages=sets.newer_messages(database, since), newer_in=place)


def given_back(directory, listed, progress):
    """The trees that come back out of the set, and where what came in their place goes."""
    found = []
    for number, tree in enumerate(listed["trees"]):
        swap = moves.read_json(f"{directory}/{tree['saved']}.json") if tree["how"] == "moved" else None
        if swap and swap["stage"] != "away" and not is_back(directory, number):
            found.append({"path": tree["path"], "aside": aside_of(progress, number, tree)})
    return found


def damage_of(directory, listed, kind):
    """What is wrong with the copies of a kind; nothing where each is as it was taken."""
    for tree in listed["trees"]:
        if tree["kind"] != kind or tree["how"] != "copied":
            continue
        if not tree["entries"]:
            continue
        found = {entry["path"]: entry for entry in trees.describe(f"{directory}/{tree['saved']}")}
        for entry in tree["entries"]:
            there = found.get(entry["path"], {})
            if any(there.get(key) != entry.get(key) for key in ("kind", "sha256", "target")):
                return f"the copy of {sets.place(tree, entry)} in the recovery set is not what it was"
    return ""


# Trees


def put_trees_back(directory, listed, progress):
    """State where its form changed, and whatever was moved into the set instead of copied."""
    for number, tree in enumerate(listed["trees"]):
        saved, journal = f"{directory}/{tree['saved']}", journal_of(directory, number)
        aside = aside_of(progress, number, tree)
        if tree["how"] == "moved" and not is_back(directory, number):
            moves.give_back(tree["path"], saved, aside, f"{saved}.json", journal, tree["exclude"])
        elif tree["kind"] == "state" and progress["state"] == "put back":
            os.makedirs(os.path.dirname(aside), mode=0o700, exist_ok=True)
            moves.replace_children(tree["path"], saved, aside, journal, tree["exclude"])


def journal_of(directory, number):
    return f"{directory}/back-{number}.json"


def is_back(directory, number):
    return (moves.read_json(journal_of(directory, number)) or {}).get("stage") == "done"


def aside_of(progress, number, tree):
    return f"{progress['aside']}/{tree['kind']}/{number}"


# Configuration


def put_configuration_back(directory, listed, description, aside):
    """Make every path of the configuration what it was; the paths that were changed."""
    known: set = set()  # type: ignore[type-arg]
    changed = []
    for tree in listed["trees"]:
        if tree["kind"] == "configuration" and tree["how"] == "copied":
            known.update(sets.place(tree, entry) for entry in tree["entries"])
    for scope in listed["scopes"]:
        for path in trees.expand(scope["path"]):
            for extra in extras_of(path, scope["exclude"], known):
                unit = units.unit_of(extra)
                if unit:
                    units.systemctl("disable", "--now", unit)
                moves.put_aside(extra, aside)
                changed.append(extra)
    for tree in listed["trees"]:
        if tree["kind"] == "configuration" and tree["how"] == "copied":
            for entry in tree["entries"]:
                saved = f"{directory}/{tree['saved']}"
                source = f"{saved}/{entry['path']}" if entry["path"] else saved
                if put_entry_back(source, entry, sets.place(tree, entry), aside):
                    changed.append(sets.place(tree, entry))
    return changed


def extras_of(path, exclude, known):
    """What is live below `path` and was not when the set was taken, each with everything below it."""
    extras: list = []  # type: ignore[type-arg]
    for entry in trees.entries(path, exclude):
        live = f"{path}/{entry['path']}" if entry["path"] else path
        is_below = bool(extras) and live.startswith(extras[-1] + "/")
        if live not in known and entry["kind"] != "special" and not is_below and not live.startswith(NEVER):
            extras.append(live)
    return extras


def put_entry_back(source, entry, live, aside):
    """Make one path what it was; whether it was otherwise."""
    found = trees.look(live)
    if found and all(found.get(key) == entry.get(key) for key in COMPARED):
        return False
    if found and (found["kind"] not in ("file", "link") or entry["kind"] == "directory"):
        if found["kind"] != entry["kind"]:
            moves.put_aside(live, aside)
    elif found:
        moves.keep_copy(live, aside)
    moves.ensure_directory(os.path.dirname(live))
    if entry["kind"] == "directory":
        moves.ensure_directory(live)
        moves.dress_directory(live, entry)
    else:
        moves.place_file(source, entry, live)
    return True


def put_links_back(description, aside):
    for link, target in description["links"].items():
        found = trees.look(link)
        if target is None and found:
            moves.put_aside(link, aside)
        elif target is not None and (found or {}).get("target") != target:
            if found and found["kind"] != "link":
                moves.put_aside(link, aside)
            moves.place_link(link, target)


def put_personality_back():
    """Let the prompts of conversations follow the personality that is back; what went wrong."""
    settings = conversations.read("conversations/settings.json")
    if settings is None:
        return ""
    try:
        problem = conversations.renew(settings, may_reset=False)["problem"]
    except (OSError, sqlite3.Error) as error:
        problem = str(error)
    return f"conversations keep the personality that they had: {problem}" if problem else ""


def put_own_back(directory, names):
    """Put the engine's own files back."""
    for name in names:
        path, saved = f"{sets.HOME}/{name}", f"{directory}/own/{name}"
        if not os.path.exists(saved):
            moves.remove_tree(path)
            moves.sync_directory(sets.HOME)
            continue
        with open(saved, encoding="utf-8") as file:
            moves.write_text(path, file.read())


def put_owed_back(directory, has_ended):
    """Put back what was owed; an owner's note that was sent or dropped since is not owed again.

    If conversations that were ended since stay so (`has_ended`), their owner is still to be told.
    """
    owed, now = (moves.read_json(f"{place}/owed.json") for place in (f"{directory}/own", sets.HOME))
    now = now or {}
    notice = has_ended and now.get("notice", False)
    if owed is None and not notice:
        put_own_back(directory, ("owed.json",))
        return
    owed = owed or {}
    note, present = owed.get("note") or {}, now.get("note") or {}
    owed["note"] = now["note"] if note and present.get("version") == note.get("version") else None
    if notice:
        owed["notice"] = True
    moves.write_json(sets.HOME + "/owed.json", owed)


def stay_ended(description, listed, progress):
    """Whether conversations that were ended since the set was taken stay so: their database does not go back."""
    database = (description["gateway"] or {}).get("database", "")
    moved = any(tree["how"] == "moved" and database.startswith(tree["path"] + "/") for tree in listed["trees"])
    return progress["state"] != "put back" and not moved


def settle_units(description, changed, all_of_them):
    """Let the other units run from the files that are back; what went wrong."""
    problems = [units.systemctl("daemon-reload")]
    if not all_of_them and not set(changed) - set(description["quiet"]):
        return problems
    for name, now in units.states_of(units.starters_first(others_of(description))).items():
        then = description["units"][name]
        if then["enabled"] != now["enabled"]:
            problems.append(units.systemctl("enable" if then["enabled"] else "disable", name))
        if then["active"]:
            problems.append(units.systemctl("reload-or-restart", name))
        elif now["active"]:
            problems.append(units.systemctl("stop", name))
    return problems


def finish(directory, progress, changed, started_at, problems):
    """Close the set, and those after it: what they describe is no longer ahead of what is there."""
    result = {
        "outcome": "undone",
        "aside": progress["aside"] if os.path.isdir(progress["aside"]) else None,
        "state": progress["state"],
        "given_back": [item for item in progress.get("given_back", []) if sets.holds_something(item["aside"])],
        "newer_in": progress.get("newer_in"),
        "newer_messages": progress.get("newer_messages"),
        "changed": changed,
        "old_pid": progress["old_pid"],
        "started_at": started_at,
        "problems": [problem for problem in problems if problem],
    }
    this = os.path.basename(directory)
    for run in sets.complete():
        description = moves.read_json(sets.directory_of(run) + "/set.json")
        if run >= this and not description["undone"]:
            description["undone"] = time.time()
            moves.write_json(sets.directory_of(run) + "/set.json", description)
        if run >= this:
            sets.close(run)
    moves.write_json(directory + "/undo.json", {**progress, "stage": "done", "result": result})
    return result
