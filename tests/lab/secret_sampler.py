"""Looks at the arguments and the environment of every process until it is told to stop.

Patterns come over standard input, one line of base64 each; then an empty line. Every process that shows one
is printed once, as ``pid kind command``. Ends when standard input does, and prints how often it looked.
"""

from __future__ import annotations

import base64
import os
import select
import sys


def main() -> None:
    patterns = [base64.b64decode(line) for line in iter(sys.stdin.readline, "\n")]
    print("ready", flush=True)
    seen: set[tuple[str, str]] = set()
    rounds = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        rounds += 1
        for pid in filter(str.isdigit, os.listdir("/proc")):
            for kind in ("cmdline", "environ"):
                if (pid, kind) not in seen and shows(pid, kind, patterns):
                    seen.add((pid, kind))
                    print(pid, kind, name_of(pid), flush=True)
    print(f"rounds {rounds}", flush=True)


def shows(pid: str, kind: str, patterns: list[bytes]) -> bool:
    try:
        with open(f"/proc/{pid}/{kind}", "rb") as file:
            content = file.read()
    except OSError:
        return False
    return any(pattern in content for pattern in patterns)


def name_of(pid: str) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")[-4:-1].__repr__()
    except OSError:
        return "gone"


if __name__ == "__main__":
    main()
