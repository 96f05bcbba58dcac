"""Runs on the tenant: how many error lines a unit wrote in a stretch of time. It changes nothing.

Reads ``PARAMETERS``: unit, seconds (how long the stretch is), since (Unix seconds; null for the stretch that ends with
the unit's last start, or now where that is longer ago than recent_seconds), recent_seconds, pattern (what makes a line
one of error besides the syslog priorities 0 to 3: most runtimes write all levels to standard output, which the
journal keeps as priority 6). Leaves ``RESULT``: error_lines, or problem where the journal gave no whole answer.
"""

# mypy: disallow-untyped-defs=False, disallow-untyped-calls=False, disallow-incomplete-defs=False
import json
import re
import subprocess
import time

PARAMETERS: dict = globals()["PARAMETERS"]  # type: ignore[type-arg]


def last_start(unit):
    shown = subprocess.run(
        ["systemctl", "show", "--value", "--timestamp=unix", "--property=ActiveEnterTimestamp", "--", unit],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    # Empty for a unit that was never active.
    return int(shown.removeprefix("@")) if shown.startswith("@") else None


def stretch():
    seconds, since = max(1, round(PARAMETERS["seconds"])), PARAMETERS["since"]
    if since is None:
        now = int(time.time())
        started = last_start(PARAMETERS["unit"])
        is_recent = started is not None and now - started <= PARAMETERS["recent_seconds"]
        since = (started if is_recent else now) - seconds
    return int(since), int(since) + seconds


def is_error(entry, pattern):
    priority, message = entry.get("PRIORITY"), entry.get("MESSAGE")
    if isinstance(priority, str) and priority.isdigit() and int(priority) <= 3:
        return True
    # What is no UTF-8 comes as a list of its bytes.
    text = bytes(message).decode("utf-8", "replace") if isinstance(message, list) else message
    return isinstance(text, str) and pattern.search(text) is not None


def count(since, until):
    pattern, errors = re.compile(PARAMETERS["pattern"], re.MULTILINE), 0
    command = [
        "journalctl", "--quiet", "--no-pager", "--all", "--output=json", "--output-fields=PRIORITY,MESSAGE",
        f"--unit={PARAMETERS['unit']}", f"--since=@{since}", f"--until=@{until}",
    ]  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as journal:
        assert journal.stdout is not None
        for line in journal.stdout:
            errors += is_error(json.loads(line), pattern)
    return {"error_lines": errors} if journal.returncode == 0 else {"problem": f"exit status {journal.returncode}"}


RESULT = count(*stretch())
