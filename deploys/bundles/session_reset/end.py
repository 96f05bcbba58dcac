"""Ends the open sessions of the declared sources, once for each declared reset, before the gateway starts.

A session keeps the personality that it began with; after a reset the next message begins a new one. What
is ended is written to a file for the owner first, then removed with the runtime's own functions. The
declaration has two lines: the reset's name, and the sources, separated by blanks.
"""

import json
import os
import pathlib

DECLARED = pathlib.Path("/etc/tenant/session-reset")
HOME = pathlib.Path(os.environ["HERMES_HOME"])
DONE = HOME / ".session-reset"
ENDED = HOME / "ended-sessions"


def write(path, text):
    partial = path.with_name(f".{path.name}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)


def end(sources):
    # Only here: it takes half a second, and most starts have nothing to end.
    from hermes_state import SessionDB

    database = SessionDB(db_path=HOME / "state.db")
    for source in sources:
        for session in database.search_sessions(source=source, limit=100_000):
            if session["ended_at"] is None:
                ENDED.mkdir(exist_ok=True)
                exported = database.export_session(session["id"])
                write(
                    ENDED / f"{session['started_at']:.0f}-{os.urandom(4).hex()}.json", json.dumps(exported, default=str)
                )
                database.delete_session(session["id"])
    database.close()


def main():
    name, sources = DECLARED.read_text().splitlines()
    if DONE.exists() and DONE.read_text().strip() == name:
        return
    if (HOME / "state.db").exists():
        end(sources.split())
    write(DONE, f"{name}\n")


main()
