"""Runs every program of a directory for each new submission of the forms store, in order of arrival.

A program gets the submission as JSON on standard input. The last submission whose hooks have all
succeeded is on the disk, so that a stop or a failing hook loses none: its hooks run again.
"""

import argparse
import json
import os
import pathlib
import sqlite3
import subprocess
import sys
import time

POLL_SECONDS = 1
RETRY_SECONDS = 15
HOOK_SECONDS = 60


def newer(database, last):
    connection = sqlite3.connect(database, timeout=10)
    try:
        query = "SELECT id, form, fields, received_at FROM submissions WHERE id > ? ORDER BY id"
        return connection.execute(query, (last,)).fetchall()
    finally:
        connection.close()


def read_last(state, database):
    """The last submission that was told; what was there before the first start is not news."""
    if state.exists():
        return int(state.read_text())
    last = max((row[0] for row in newer(database, 0)), default=0)
    write_last(state, last)
    return last


def write_last(state, last):
    partial = state.with_name(".last")
    with open(partial, "w") as file:
        file.write(f"{last}\n")
        file.flush()
        os.fsync(file.fileno())
    partial.rename(state)


def run_hooks(directory, row):
    number, form, fields, received_at = row
    submission = {"id": number, "form": form, "fields": json.loads(fields), "received_at": received_at}
    for hook in sorted(path for path in directory.iterdir() if os.access(path, os.X_OK)):
        subprocess.run([hook], input=json.dumps(submission), text=True, timeout=HOOK_SECONDS, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("database", "state", "hooks"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=True)
    options = parser.parse_args()
    last = read_last(options.state, options.database)
    while True:
        try:
            for row in newer(options.database, last):
                run_hooks(options.hooks, row)
                last = row[0]
                write_last(options.state, last)
            time.sleep(POLL_SECONDS)
        except (OSError, subprocess.SubprocessError, sqlite3.Error) as error:
            print(f"submission after {last}: {error}", file=sys.stderr, flush=True)
            time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    main()
