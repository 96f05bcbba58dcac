"""A small gateway for light lab hosts: answers /health, keeps messages, reports its channel.

It does what the engine relies on in the real runtime, in the same forms: SQLite in WAL mode, a state
file that names the process, a port. It misbehaves for tests: as ``fault`` beside its state says, or the key ``fault``
of its configuration. From version 2 on its messages have another form.
"""

import datetime
import http.server
import json
import os
import pathlib
import sqlite3
import sys
import threading

HOME = pathlib.Path(sys.argv[1])
PORT = int(sys.argv[2])
VERSION = pathlib.Path(__file__).resolve().parent.name
FILE = pathlib.Path("/etc/light/gateway.json")
CONFIGURATION = json.loads(FILE.read_text()) if FILE.exists() else {}


def fault():
    path = HOME / "fault"
    return path.read_text().strip() if path.exists() else CONFIGURATION.get("fault", "")


def report(state):
    now = datetime.datetime.now(datetime.UTC).isoformat()
    content = {"pid": os.getpid(), "platforms": {"local": {"state": state, "updated_at": now}}}
    temporary = HOME / ".gateway_state.json"
    temporary.write_text(json.dumps(content))
    temporary.rename(HOME / "gateway_state.json")


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if fault() == "errors":
            print("ERROR light: told to complain", flush=True)
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
if VERSION.startswith("2.") and "mood" not in [row[1] for row in database.execute("PRAGMA table_info(messages)")]:
    database.execute("ALTER TABLE messages ADD COLUMN mood TEXT")
database.commit()
if fault() == "crash":
    sys.exit("told to crash")
server = http.server.HTTPServer(("127.0.0.1", PORT), Handler)
report("retrying" if fault() == "no-channel" else "connected")
if fault() == "crash-loop":
    threading.Timer(0.7, lambda: os._exit(1)).start()
server.serve_forever()
