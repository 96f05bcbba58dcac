"""A small gateway for light lab hosts: answers /health, keeps messages, reports its channel.

It does what the engine relies on in the real runtime, in the same forms: SQLite in WAL mode, a state
file that names the process, a port. ``fault`` beside its state makes it misbehave, for fault tests.
"""

import datetime
import http.server
import json
import os
import pathlib
import sqlite3
import sys

HOME = pathlib.Path(sys.argv[1])
PORT = int(sys.argv[2])
VERSION = pathlib.Path(__file__).resolve().parent.name


def fault():
    path = HOME / "fault"
    return path.read_text().strip() if path.exists() else ""


def report(state):
    now = datetime.datetime.now(datetime.UTC).isoformat()
    content = {"pid": os.getpid(), "platforms": {"local": {"state": state, "updated_at": now}}}
    temporary = HOME / ".gateway_state.json"
    temporary.write_text(json.dumps(content))
    temporary.rename(HOME / "gateway_state.json")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"status": "ok", "version": VERSION}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


database = sqlite3.connect(HOME / "state.db")
database.execute("PRAGMA journal_mode=WAL")
database.execute("CREATE TABLE IF NOT EXISTS messages (session_id TEXT, role TEXT, content TEXT, timestamp REAL)")
database.commit()
if fault() == "crash":
    sys.exit("told to crash")
server = http.server.HTTPServer(("127.0.0.1", PORT), Handler)
report("retrying" if fault() == "no-channel" else "connected")
server.serve_forever()
