"""Runs on the tenant, as the module ``dead_man`` of another script: undoes by itself what nobody confirms.

While it is armed, a timer of systemd lets it look every few seconds (``tick``) whether the run still works on this
host. It acts as a run of its own: under the host-side lock, and with the host claimed, so that the run that it stands
in for is refused if it wakes up again.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import fcntl
import os
import time
from typing import Any

moves: Any = globals()["moves"]
units: Any = globals()["units"]
sets: Any = globals()["sets"]
undo: Any = globals()["undo"]

NAME = "tenantry-deadman"
MEMORY = "/run/tenantry-deadman.json"
BOOT_ID = "/proc/sys/kernel/random/boot_id"

SERVICE = """[Unit]
Description=Tenantry: put this tenant back if nobody confirms its update

[Service]
Type=oneshot
TimeoutStartSec=infinity
ExecStart=/usr/bin/python3 -ISs {program}
"""

TIMER = """[Unit]
Description=Tenantry: look whether an update is still being carried out

[Timer]
OnActiveSec={poll}s
OnBootSec={poll}s
OnUnitInactiveSec={poll}s
AccuracySec=100ms

[Install]
WantedBy=timers.target
"""


def home():
    return sets.HOME + "/deadman"


def armed():
    """What it is armed for; None while it is not."""
    return moves.read_json(home() + "/armed.json")


def arm(parameters):
    """Arm it for a run: {set, run, head, seconds, poll_seconds, program}. What is on the disk last arms it."""
    os.makedirs(home(), mode=0o700, exist_ok=True)
    program = home() + "/tick.py"
    moves.write_text(program, parameters["program"])
    moves.write_text(f"{units.DIRECTORY}/{NAME}.service", SERVICE.format(program=program))
    moves.write_text(f"{units.DIRECTORY}/{NAME}.timer", TIMER.format(poll=parameters["poll_seconds"]))
    problems = [units.systemctl("daemon-reload"), units.systemctl("enable", "--now", NAME + ".timer")]
    if any(problems):
        raise OSError("; ".join(filter(None, problems)))
    if os.path.exists(MEMORY):
        os.unlink(MEMORY)
    # The links that systemctl made.
    os.sync()
    kept = ("set", "run", "head", "seconds")
    moves.write_json(
        home() + "/armed.json", {name: parameters[name] for name in kept} | {"at": time.time(), "boot_id": boot_id()}
    )


def disarm(*, by_itself=False):
    """Disarm it, and leave nothing behind; under the host-side lock, so that it does not act meanwhile."""
    if os.path.exists(home() + "/armed.json"):
        os.unlink(home() + "/armed.json")
        moves.sync_directory(home())
    units.systemctl("disable", "--now", NAME + ".timer")
    if not by_itself:
        # A look that has just begun ends here: without the lock it has nothing to lose. systemd calls that a failure.
        units.systemctl("stop", NAME + ".service")
        units.systemctl("reset-failed", NAME + ".service")
    for kind in ("timer", "service"):
        moves.remove_tree(f"{units.DIRECTORY}/{NAME}.{kind}")
    units.systemctl("daemon-reload")
    moves.remove_tree(home())


def boot_id():
    with open(BOOT_ID, encoding="ascii") as file:
        return file.read().strip()


def tick():
    """Look once; acts where the run is gone. What was done."""
    lock = os.open(sets.HOME + "/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not lock_at_once(lock):
            # A command that runs is a sign of life, however long ago it began.
            moves.write_json(MEMORY, {"signs": None, "since": now()})
            return "a command runs"
        order = armed()
        if order is None:
            disarm(by_itself=True)
            return "not armed"
        if not is_due(order):
            return "not due"
        act(order, lock)
        return "undone"
    finally:
        os.close(lock)


def lock_at_once(lock):
    # Twice, because a probe that looks whether it is held holds it for a moment.
    for pause in (0.3, 0):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(pause)
    return False


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def is_due(order):
    """Whether no command of any run has begun for as long as it may take; at once after a restart of the host."""
    if order["boot_id"] != boot_id() or claimed_by() == own_id(order):
        return True
    signs = [os.stat(f"{sets.HOME}/lock").st_mtime_ns, claimed_by()]
    memory = moves.read_json(MEMORY)
    if memory is None or memory["signs"] is None or memory["signs"] != signs:
        moves.write_json(MEMORY, {"signs": signs, "since": now()})
        return False
    return now() - memory["since"] >= order["seconds"]


def claimed_by():
    try:
        with open(sets.HOME + "/run", encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def own_id(order):
    return "dead-man-" + order["run"]


def act(order, lock):
    """Claim the host, undo, say so, and be gone."""
    moves.write_text(sets.HOME + "/run", own_id(order) + "\n")
    os.ftruncate(lock, 0)
    os.pwrite(lock, (own_id(order) + "\nrollback by the dead-man\n").encode(), 0)
    reason = f"nobody confirmed run {order['run']}, so the tenant put itself back"
    held = {"head": order["head"], "run": order["run"], "at": time.time(), "reason": reason, "by": "dead-man"}
    result = undo.undo({"set": order["set"], "by": own_id(order), "held": held})
    if result["outcome"] == "damaged":
        held["reason"] = f"nobody confirmed run {order['run']}, and it cannot be undone: {result['problem']}"
        moves.write_json(sets.HOME + "/held.json", held)
    elif result["aside"]:
        held["reason"] += f"; {what_is_aside(result)}"
        moves.write_json(sets.HOME + "/held.json", held)
    if os.path.isdir(sets.directory_of(order["set"])):
        moves.write_json(sets.directory_of(order["set"]) + "/dead-man.json", {"at": time.time(), **result})
    disarm(by_itself=True)


def what_is_aside(result):
    if not result["newer_in"]:
        return f"what was replaced is in {result['aside']}"
    count = result["newer_messages"]
    return f"{'an unknown number of' if count is None else count} newer messages are in {result['newer_in']}"
