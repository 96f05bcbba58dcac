"""Ends conversations with the runtime's own functions, where a changed personality cannot reach their prompts.

The engine sends it to the tenant and runs it there as the runtime's account, while the gateway is stopped. Each
conversation is written to a file for the owner first; the next message of its channel begins a new one.
"""

import json
import os
import pathlib
import sys

question = json.load(sys.stdin)
DATABASE = pathlib.Path(question["database"])
HOME = DATABASE.parent
ENDED = HOME / "ended-sessions"
os.environ["HERMES_HOME"] = str(HOME)
os.umask(0o077)


def keep(session):
    ENDED.mkdir(exist_ok=True)
    path = ENDED / f"{session['started_at']:.0f}-{os.urandom(4).hex()}.json"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(session, file, default=str)
        file.flush()
        os.fsync(file.fileno())


def main():
    from hermes_state import SessionDB

    database = SessionDB(db_path=DATABASE)
    for name in question["sessions"]:
        session = database.export_session(name)
        if session is not None:
            keep(session)
            database.delete_session(name)
    database.close()


main()
