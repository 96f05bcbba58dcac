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

# Each attempt stops the gateway for a moment. One that died goes on at once, one that keeps failing is no help.
PAUSES = (0, 60, 300, 900)
LONGEST_PAUSE = 3600

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
    for known in (MEMORY, home() + "/attempts.json"):
        moves.remove_tree(known)
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
    """Whether no command of any run has begun for as long as it may take; at once after a restart of the host.

    Where it has begun to act itself, whether the next attempt may be made.
    """
    if claimed_by() == own_id(order):
        return may_try_again()
    if order["boot_id"] != boot_id():
        return True
    signs = [os.stat(f"{sets.HOME}/lock").st_mtime_ns, claimed_by()]
    memory = moves.read_json(MEMORY)
    if memory is None or memory["signs"] is None or memory["signs"] != signs:
        moves.write_json(MEMORY, {"signs": signs, "since": now()})
        return False
    return now() - memory["since"] >= order["seconds"]


def attempts():
    """What is known of earlier attempts: how many, when the last one began, and in which boot."""
    return moves.read_json(home() + "/attempts.json") or {"count": 0, "at": 0.0, "boot_id": ""}


def may_try_again():
    made = attempts()
    pause = PAUSES[made["count"] - 1] if 0 < made["count"] <= len(PAUSES) else LONGEST_PAUSE
    return not made["count"] or made["boot_id"] != boot_id() or now() - made["at"] >= pause


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
    # Written before anything is stopped: an attempt that cannot be counted is not made.
    count = attempts()["count"] + 1
    moves.write_json(home() + "/attempts.json", {"count": count, "at": now(), "boot_id": boot_id()})
    try:
        result = undo.undo(
            {
                "set": order["set"],
                "by": own_id(order),
                "held": held_for(order, "so the tenant put itself back"),
            }
        )
    except Exception as error:
        if count > len(PAUSES):
            hold(order, f"but putting the tenant back fails, for now: {error}")
        raise
    if result["outcome"] == "damaged":
        hold(order, f"and it cannot be undone: {result['problem']}")
    elif result["aside"]:
        hold(order, f"so the tenant put itself back; {what_is_aside(result)}")
    if os.path.isdir(sets.directory_of(order["set"])):
        moves.write_json(sets.directory_of(order["set"]) + "/dead-man.json", {"at": time.time(), **result})
    disarm(by_itself=True)


def held_for(order, outcome):
    """What the tenant is held with."""
    reason = f"nobody confirmed run {order['run']}, {outcome}"
    return {"head": order["head"], "run": order["run"], "at": time.time(), "reason": reason, "by": "dead-man"}


def hold(order, outcome):
    moves.write_json(sets.HOME + "/held.json", held_for(order, outcome))


def what_is_aside(result):
    if not result["newer_in"]:
        return f"what was replaced is in {result['aside']}"
    count = result["newer_messages"]
    return f"{'an unknown number of' if count is None else count} newer messages are in {result['newer_in']}"
