"""Runs on the tenant, as the module ``units`` of another script: what systemd says and does."""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import os
import subprocess
import time

DIRECTORY = "/etc/systemd/system"
KINDS = (".service", ".socket", ".timer", ".path", ".target", ".mount")
STARTERS = (".timer", ".socket", ".path")


def systemctl(*arguments):
    """Let systemctl do something; what went wrong, or nothing."""
    command = ["systemctl", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else f"systemctl {' '.join(arguments)}: {done.stderr.strip()}"


def show(unit, name):
    """One property of a unit."""
    command = ["systemctl", "show", "--value", "-p", name, "--", unit]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout.strip()


def states_of(names):
    """Whether each unit is there, active and enabled."""
    states = {}
    for name in names:
        states[name] = {
            "loaded": show(name, "LoadState") == "loaded",
            "active": show(name, "ActiveState") in ("active", "activating", "reloading"),
            "enabled": show(name, "UnitFileState") == "enabled",
        }
    return states


def unit_of(path):
    """The unit whose own file `path` is; nothing for another file."""
    directory, name = os.path.split(path)
    return name if directory == DIRECTORY and name.endswith(KINDS) and "@." not in name else ""


def starters_first(names):
    """Units in the order in which they are stopped, and started again: what would start another comes before it."""
    return sorted(names, key=lambda name: not name.endswith(STARTERS))


def stop(unit):
    """Stop a unit; its main process before, and what went wrong."""
    old_pid = int(show(unit, "MainPID") or 0)
    return old_pid, systemctl("stop", unit)


def start(unit):
    """Start a unit from files that may be new; when it was started, and what went wrong."""
    started_at = time.time()
    problems = [systemctl("daemon-reload")]
    # Fails for a unit that systemd has dropped from memory, which then has no failures to forget.
    systemctl("reset-failed", unit)
    problems.append(systemctl("start", unit))
    return started_at, [problem for problem in problems if problem]
